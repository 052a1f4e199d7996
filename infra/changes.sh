# shellcheck shell=bash
# Sourced by deploy.sh and restore.sh: how a stack is waited for, and what a table needs that a stack did not make. Needs
# account.sh.

: "${stack:?}" "${account:?}" "${region:?}"

# settled: waits for the stack, however long it changes; fails unless it is what it should be then. AWS' own waiters give up
# after an hour, and a rollout in steps may take longer.
settled() {
    local status
    while status=$(aws cloudformation describe-stacks --stack-name "$stack" --output text --query 'Stacks[0].StackStatus'); do
        case "$status" in
            *_IN_PROGRESS) sleep "${LOOK_EVERY:-10}" ;;
            CREATE_COMPLETE | UPDATE_COMPLETE) return ;;
            *) say "the stack $stack is $status" && return 1 ;;
        esac
    done
    return 1
}

# changing: whether somebody changes the stack just now.
changing() {
    [[ $(aws cloudformation describe-stacks --stack-name "$stack" --output text --query 'Stacks[0].StackStatus') = *_IN_PROGRESS ]]
}

# settings TABLE: gives it what no restored, copied or imported table has: time to live, recovery, protection. Refuses one
# that is no table of Dormouse.
settings() {
    local indexes expires
    indexes=$(aws dynamodb describe-table --table-name "$1" --query 'Table.GlobalSecondaryIndexes[].IndexName' --output text) ||
        fail "there is no table $1 in account $account, region $region"
    [[ " ${indexes//$'\t'/ } " == *" claims "* ]] || fail "the table $1 has no index claims: restore it with its indexes"
    expires=$(aws dynamodb describe-time-to-live --table-name "$1" --output text \
        --query 'TimeToLiveDescription.[TimeToLiveStatus, AttributeName]')
    case "$expires" in
        ENABL*$'\t'ttl) ;;
        DISABLED*)
            aws dynamodb update-time-to-live --table-name "$1" \
                --time-to-live-specification Enabled=true,AttributeName=ttl >/dev/null
            ;;
        *) fail "the time to live of the table $1 is $expires, and has to be that of ttl; AWS changes it once an hour" ;;
    esac
    aws dynamodb update-continuous-backups --table-name "$1" \
        --point-in-time-recovery-specification PointInTimeRecoveryEnabled=true >/dev/null
    if [[ $(aws dynamodb describe-table --table-name "$1" --query Table.DeletionProtectionEnabled --output text) != [Tt]rue ]]; then
        aws dynamodb update-table --table-name "$1" --deletion-protection-enabled >/dev/null
        aws dynamodb wait table-exists --table-name "$1"
    fi
}

# not_set TABLE KEY: tells what it may lack besides. KEY is the stack's own.
not_set() {
    local encrypted
    say "the table $1 has time to live, recovery and protection. Nobody gave it: tags, growing by itself (application-autoscaling)," \
        "warm throughput, a resource policy, or another capacity than it has ($(aws dynamodb describe-table --table-name "$1" \
            --query "Table.BillingModeSummary.BillingMode || 'PROVISIONED'" --output text))"
    encrypted=$(aws dynamodb describe-table --table-name "$1" --query Table.SSEDescription.KMSMasterKeyArn --output text)
    if [ -n "$2" ] && [ "$2" != "$encrypted" ]; then
        say "the table $1 is not encrypted with $2: aws dynamodb update-table --table-name $1" \
            "--sse-specification Enabled=true,SSEType=KMS,KMSMasterKeyId=$2"
    fi
}
