#!/usr/bin/env bash
# Goes back to what slept at an earlier time; infra/disaster.md tells what that means for those who sleep, and for those who
# were told of them.
#
#   STAGE=dev infra/restore.sh stop          from now on no function runs: callers are told to come again, events are put aside
#   STAGE=dev infra/restore.sh table TIME    a new table with what the stack's table held at TIME, like 2027-01-31T09:00:00Z,
#                                            or `latest`: as late as possible. The stack goes on with its own
#   STAGE=dev infra/restore.sh adopt TABLE   the stack uses TABLE from now on; its own one stays, without the stack
#   STAGE=dev infra/restore.sh start         functions run again, as many as the stack says
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source-path=SCRIPTDIR source=account.sh
. ./account.sh

usage() { fail "restore.sh takes: stop, table TIME, adopt TABLE or start"; }
stack_says() {
    aws cloudformation describe-stacks --stack-name "$stack" --output text --query "Stacks[0].$1"
}
parameter() { stack_says "Parameters[?ParameterKey=='$1'].ParameterValue | [0]"; }
table=$(stack_says "Outputs[?OutputKey=='TableName'].OutputValue | [0]") ||
    fail "there is no stack $stack in account $account, region $region"

functions=(Inbound Signal Wakeup)
[ "$(parameter Streaming)" = disabled ] || functions+=(Stream)
# function_name Inbound: what it is called in the account.
function_name() { echo "$stack-$1" | tr '[:upper:]' '[:lower:]'; }

stop() {
    say "stopping the functions of $stack"
    for function in "${functions[@]}"; do
        aws lambda put-function-concurrency --function-name "$(function_name "$function")" \
            --reserved-concurrent-executions 0 >/dev/null
    done
}

start() {
    local most
    say "starting the functions of $stack"
    for function in "${functions[@]}"; do
        most=$(parameter "${function}Concurrency")
        if [ "$most" = 0 ]; then
            aws lambda delete-function-concurrency --function-name "$(function_name "$function")"
        else
            aws lambda put-function-concurrency --function-name "$(function_name "$function")" \
                --reserved-concurrent-executions "$most" >/dev/null
        fi
    done
}

# What a restored table does not have: it is no copy of the settings.
settings() {
    aws dynamodb update-time-to-live --table-name "$1" --time-to-live-specification Enabled=true,AttributeName=ttl >/dev/null
    aws dynamodb update-continuous-backups --table-name "$1" \
        --point-in-time-recovery-specification PointInTimeRecoveryEnabled=true >/dev/null
    aws dynamodb update-table --table-name "$1" --deletion-protection-enabled >/dev/null
    aws dynamodb wait table-exists --table-name "$1"
}

restore() {
    local restored when=(--use-latest-restorable-time)
    restored="$stack-restored-$(date -u +%Y%m%dT%H%M%SZ)"
    [ "$1" = latest ] || when=(--restore-date-time "$1")
    say "restoring $table into $restored; AWS takes from minutes to hours for it"
    aws dynamodb restore-table-to-point-in-time --source-table-name "$table" --target-table-name "$restored" "${when[@]}" >/dev/null
    # The waiter gives up after eight minutes, and is asked again.
    until aws dynamodb wait table-exists --table-name "$restored"; do say "still restoring"; done
    settings "$restored"
    say "restored: $restored"
    say "next: STAGE=$STAGE infra/restore.sh adopt $restored"
}

# adopt ARN: updates the stack with what it has, but for the table. Another release publishes new versions.
adopt() {
    local name arguments=()
    for name in $(stack_says 'Parameters[].ParameterKey'); do
        case "$name" in
            TableArn) arguments+=("ParameterKey=TableArn,ParameterValue=$1") ;;
            Release) arguments+=("ParameterKey=Release,ParameterValue=adopted-$(date -u +%Y%m%dT%H%M%SZ)") ;;
            *) arguments+=("ParameterKey=$name,UsePreviousValue=true") ;;
        esac
    done
    aws cloudformation update-stack --stack-name "$stack" --use-previous-template --capabilities CAPABILITY_IAM \
        --parameters "${arguments[@]}" >/dev/null
    aws cloudformation wait stack-update-complete --stack-name "$stack"
}

case "${1:-}" in
    stop) stop ;;
    start) start ;;
    table)
        [ $# = 2 ] || usage
        restore "$2"
        ;;
    adopt)
        [ $# = 2 ] || usage
        arn=$(aws dynamodb describe-table --table-name "$2" --query Table.TableArn --output text) ||
            fail "there is no table $2"
        # Whatever were written to the old table meanwhile would be lost.
        stop
        say "the stack $stack takes the table $2"
        adopt "$arn"
        start
        say "adopted. The table before is $table: nothing uses it, and nothing removes it"
        say "next: dormouse letters --stack $stack, and hand back what was put aside meanwhile"
        say "next: dormouse keys list --table $2, and revoke again the keys that were revoked since then"
        ;;
    *) usage ;;
esac
