# shellcheck shell=bash
# Sourced by deploy.sh and restore.sh: whether a stack takes an update, how it is waited for, and what a table needs that a stack
# did not make. Needs account.sh.

: "${stack:?}" "${account:?}" "${region:?}"

# takes_updates: ends everything where the stack that `look` found takes no update, and says what helps. What runs or sleeps is not
# to be removed for it.
takes_updates() {
    local why="aws cloudformation describe-stack-events --stack-name $stack tells why"
    local removal="aws cloudformation delete-stack --stack-name $stack removes it, and keeps tables, buckets and what make deploy made of secrets"
    local all="make destroy STAGE=$STAGE removes ALL of the stage: tables with what sleeps in them, and secrets, without which no address is good"
    case "${state?}" in
        *_IN_PROGRESS) fail "the stack $stack changes just now ($state): again, when that is over" ;;
        UPDATE_ROLLBACK_FAILED)
            fail "the stack $stack is $state: an update failed, and so did the way back. $why;" \
                "when that is mended, aws cloudformation continue-update-rollback --stack-name $stack"
            ;;
        UPDATE_FAILED)
            fail "the stack $stack is $state: an update failed that was told not to go back. What was there before runs, and so does what" \
                "the update had changed by then: aws cloudformation rollback-stack --stack-name $stack goes back, then it can be deployed"
            ;;
        IMPORT_ROLLBACK_FAILED)
            fail "the stack $stack is $state: an import into it failed, and so did the way back. What was there before runs, so do not remove" \
                "it: $why. Neither continue-update-rollback nor rollback-stack takes a stack in that state: the support of AWS gets it out," \
                "or it is made anew around its table (infra/disaster.md of Dormouse)"
            ;;
        ROLLBACK_COMPLETE)
            fail "the stack $stack is $state: its creation failed, and nothing of it runs. $why. $removal; $all. Then it can be deployed"
            ;;
        *_FAILED)
            fail "the stack $stack is $state, and takes no update. What there is of it may run. $why. $removal, once its bus has no rules of" \
                "graphs any more (infra/destroy.sh shows how); then it can be deployed, with TABLE_ARN= to go on with what sleeps. $all"
            ;;
    esac
}

# settled: waits for the stack, however long it changes; fails unless it is what it should be then. AWS' own waiters give up
# after an hour, and a rollout in steps may take longer. A look that gets no answer is made again, some times in a row.
settled() {
    local status patience=6
    while [ "$patience" -gt 0 ]; do
        status=$(aws cloudformation describe-stacks --stack-name "$stack" --output text --query 'Stacks[0].StackStatus') || status=''
        case "$status" in
            '') patience=$((patience - 1)) ;;
            *_IN_PROGRESS) patience=6 ;;
            CREATE_COMPLETE | UPDATE_COMPLETE) return ;;
            *) say "the stack $stack is $status" && return 1 ;;
        esac
        sleep "${LOOK_EVERY:-10}"
    done
    return 1
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
