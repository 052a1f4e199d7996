#!/usr/bin/env bash
# Goes back to what slept at an earlier time; infra/disaster.md tells what that means for those who sleep, and for those who
# were told of them.
#
#   STAGE=dev infra/restore.sh stop          from now on no function runs: callers are told to come again, events are put aside
#   STAGE=dev infra/restore.sh table TIME    a new table with what the stack's table held at TIME, like 2027-01-31T09:00:00Z,
#                                            or `latest`: as late as possible. The stack goes on with its own
#   STAGE=dev infra/restore.sh adopt TABLE   the stack uses TABLE from now on, all of it at once; its own one stays, without the
#                                            stack
#   STAGE=dev infra/restore.sh start         functions run again, as many as the stack says
#
#   SETTLE_SECONDS   how long turns that run when the functions are stopped are given to end, before functions run on another
#                    table; what a turn may take (TURN_SECONDS) and five more without
set -euo pipefail
CDPATH='' cd "$(dirname "$0")"
# shellcheck source-path=SCRIPTDIR source=account.sh
. ./account.sh
# shellcheck source-path=SCRIPTDIR source=changes.sh
. ./changes.sh

usage() { fail "restore.sh takes: stop, table TIME, adopt TABLE or start"; }
look
[ -n "$state" ] || fail "there is no stack $stack in account $account, region $region"
table=$(told output TableName)
[ -n "$table" ] || fail "the stack $stack is $state, and has no table"

# find_functions: whatever functions the stack has, Inbound, Signal and so on. One that is not found goes on with the old table.
functions=()
find_functions() {
    local function listed
    listed=$(aws cloudformation list-stack-resources --stack-name "$stack" --output text \
        --query "StackResourceSummaries[?ResourceType=='AWS::Lambda::Function'].LogicalResourceId") ||
        fail "nobody tells which functions $stack has (cloudformation:ListStackResources): none was stopped or started"
    for function in $listed; do
        [ "$function" = None ] || functions+=("${function%Function}")
    done
    [ "${#functions[@]}" -gt 0 ] || fail "the stack $stack has no functions"
}
# function_name Inbound: what it is called in the account.
function_name() { echo "$stack-$1" | tr '[:upper:]' '[:lower:]'; }

stop() {
    say "stopping the functions of $stack; what runs may go on for $(running) seconds"
    say "processes of \`dormouse serve\` that use $table are not stopped by this: end them"
    for function in "${functions[@]}"; do
        aws lambda put-function-concurrency --function-name "$(function_name "$function")" \
            --reserved-concurrent-executions 0 >/dev/null
    done
}

# running: for how many seconds a turn may go on that runs when its function is stopped.
running() {
    local turn
    turn=$(standing TurnSeconds)
    echo "${SETTLE_SECONDS:-$((${turn:-150} + 5))}"
}

start() {
    local most left=()
    say "starting the functions of $stack"
    stopped=some
    for function in "${functions[@]}"; do
        most=$(standing "${function}Concurrency")
        if [ "${most:-0}" = 0 ]; then
            aws lambda delete-function-concurrency --function-name "$(function_name "$function")" || left+=("$(function_name "$function")")
        else
            aws lambda put-function-concurrency --function-name "$(function_name "$function")" \
                --reserved-concurrent-executions "$most" >/dev/null || left+=("$(function_name "$function")")
        fi
    done
    stopped=no
    [ "${#left[@]}" -eq 0 ] || fail "${left[*]}: still STOPPED, for the reason above. The others run. When it is mended (a reservation that" \
        "somebody else has in the account by now, say), STAGE=$STAGE infra/restore.sh start goes on"
}

restore() {
    local restored status when=(--use-latest-restorable-time)
    restored="$stack-restored-$(date -u +%Y%m%dT%H%M%SZ)"
    [ "$1" = latest ] || when=(--restore-date-time "$1")
    say "restoring $table into $restored; AWS takes from minutes to hours for it"
    aws dynamodb restore-table-to-point-in-time --source-table-name "$table" --target-table-name "$restored" "${when[@]}" >/dev/null
    # The waiter gives up after eight minutes, and is asked again as long as AWS restores.
    until aws dynamodb wait table-exists --table-name "$restored"; do
        status=$(aws dynamodb describe-table --table-name "$restored" --query Table.TableStatus --output text) ||
            fail "$restored cannot be looked at: it is not there any more where the restore failed;" \
                "where it is, and becomes ACTIVE, STAGE=$STAGE infra/restore.sh adopt $restored goes on"
        case "$status" in
            CREATING) say "still restoring" ;;
            ACTIVE) break ;;
            *) fail "the restore failed: $restored is $status. The stack goes on with $table" ;;
        esac
    done
    settings "$restored"
    say "restored: $restored"
    say "next: STAGE=$STAGE infra/restore.sh adopt $restored"
}

# adopt ARN: updates the stack with what it has, but for the table. Another release publishes new versions. Not in steps: nobody
# is served meanwhile, and one table would be used beside the other. The capacity that the stack names is that of a table
# which it makes.
adopt() {
    local name arguments=()
    for name in $(told parameter); do
        case "$name" in
            TableArn) arguments+=("ParameterKey=TableArn,ParameterValue=$1") ;;
            Release) arguments+=("ParameterKey=Release,ParameterValue=adopted-$(date -u +%Y%m%dT%H%M%SZ)") ;;
            Rollout) arguments+=("ParameterKey=Rollout,ParameterValue=AtOnce") ;;
            ReadCapacity | WriteCapacity | ReadCapacityMost | WriteCapacityMost | WarmReads | WarmWrites)
                arguments+=("ParameterKey=$name,ParameterValue=0")
                ;;
            *) arguments+=("ParameterKey=$name,UsePreviousValue=true") ;;
        esac
    done
    aws cloudformation update-stack --stack-name "$stack" --use-previous-template --capabilities CAPABILITY_IAM \
        --parameters "${arguments[@]}" >/dev/null
    settled
}

# Nobody is left with functions that are stopped and does not know it.
stopped=no
tell_what_is_stopped() {
    case "$stopped" in
        yes)
            printf '%s\n' "cannot go on: EVERY FUNCTION OF $stack IS STOPPED, and this came to no end." \
                "aws cloudformation describe-stack-events --stack-name $stack tells what went wrong." \
                "STAGE=$STAGE infra/restore.sh start lets the functions run again, with the table that the stack has then." >&2
            ;;
        some) say "functions of $stack are STILL STOPPED: STAGE=$STAGE infra/restore.sh start lets them run" >&2 ;;
    esac
}
trap tell_what_is_stopped EXIT

case "${1:-}" in
    stop)
        find_functions
        stop
        ;;
    start)
        find_functions
        start
        ;;
    table)
        [ $# = 2 ] || usage
        restore "$2"
        ;;
    adopt)
        [ $# = 2 ] || usage
        # Nothing is stopped for an update that is refused.
        takes_updates
        arn=$(aws dynamodb describe-table --table-name "$2" --query Table.TableArn --output text) ||
            fail "there is no table $2 in account $account, region $region"
        find_functions
        settings "$2"
        rollout=$(standing Rollout) capacity=$(standing ReadCapacity) most=$(standing ReadCapacityMost)
        # Whatever were written to the old table meanwhile would be lost.
        stopped=yes
        stop
        began=$SECONDS
        say "the stack $stack takes the table $2"
        adopt "$arn"
        rest=$(($(running) - SECONDS + began))
        if [ "$rest" -gt 0 ]; then
            say "waiting $rest seconds for turns that ran when the functions were stopped"
            sleep "$rest"
        fi
        start
        say "adopted. The table before is $table: nothing uses it, and make destroy removes it with the rest"
        not_set "$2" "$(standing KmsKeyArn)"
        [ "${capacity:-0}" = 0 ] ||
            say "READ_CAPACITY and the like were those of the table before ($capacity, up to $most), and count no more"
        [ "${rollout:-AtOnce}" = AtOnce ] ||
            say "next: ROLLOUT=$rollout with the next deployment; this one was made at once, and so are others until then"
        say "next: dormouse letters --stack $stack, and hand back what was put aside meanwhile"
        say "next: dormouse keys list --table $2, and revoke again the keys that were revoked since then"
        ;;
    *) usage ;;
esac
