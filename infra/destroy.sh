#!/usr/bin/env bash
# Removes everything that deploy.sh, restore.sh and the functions made for STAGE: the stack, the rules that graphs made, the tables
# with everything that sleeps, the buckets of workspaces, the secrets, the built functions. A table or bucket that was there before,
# which TABLE_ARN or WORKSPACES_BUCKET named, stays, unless its name says that an earlier stack of STAGE made it. Asks first; YES=1 answers. Where it ended early the same call goes on, also
# when the stack is gone: what is left is found by its name.
#
#   ARTIFACT_BUCKET, SECRET_STORE   as for deploy.sh; needed where the stack is gone, which knew them
set -euo pipefail
CDPATH='' cd "$(dirname "$0")"
# shellcheck source-path=SCRIPTDIR source=account.sh
. ./account.sh

look
case "$state" in
    REVIEW_IN_PROGRESS | DELETE_IN_PROGRESS) ;;
    *_IN_PROGRESS) fail "the stack $stack changes just now ($state): again, when that is over" ;;
esac
[ "$(told protected)" != true ] || fail "the stack $stack is protected; deploy it with PROTECTED=no first"
bucket=$(bucket_of_artifacts)
case "$(standing SecretStore)" in
    '') read -r -a stores <<<"${SECRET_STORE:-parameter-store secrets-manager}" ;;
    parameter-store) stores=(parameter-store) ;;
    *) stores=(secrets-manager) ;;
esac
# Both are read by secrets.sh.
# shellcheck disable=SC2034
store=${stores[0]} key=''
# shellcheck source-path=SCRIPTDIR source=secrets.sh
. ./secrets.sh

# What cannot be listed is told while everything stands.
unknown() { fail "nobody tells $*: nothing was removed"; }
# list_rules: the rules of the bus, in `rules`.
list_rules() {
    rules=''
    [ -n "$state" ] || return 0
    if ! rules=$(aws events list-rules --event-bus-name "$stack" --query 'Rules[].Name' --output text 2>&1); then
        [[ $rules = *ResourceNotFoundException* ]] || unknown "which rules the bus $stack has (events:ListRules). $rules"
        rules=''
    fi
}
list_rules
tables_of_stage || unknown "which tables there are (dynamodb:ListTables)"
buckets_of_workspaces || unknown "which buckets of workspaces there are"
for bundles in ${found_buckets[@]+"${found_buckets[@]}"}; do
    aws s3api list-object-versions --bucket "$bundles" --expected-bucket-owner "$account" --max-items 1 >/dev/null ||
        unknown "what is in $bundles (s3:ListBucketVersions)"
done
secrets_left=()
for store in "${stores[@]}"; do
    find_secrets
    secrets_left+=("${found_secrets[@]/#/$store }")
done
zips=''
if has_bucket "$bucket"; then
    zips=$(aws s3api list-objects-v2 --bucket "$bucket" --expected-bucket-owner "$account" --prefix "$stack/" --max-items 1 \
        --query 'Contents[].Key' --output text) || unknown "what is in $bucket (s3:ListBucket)"
    zips=${zips/#None*/}
fi
[ -n "$state$zips" ] || [ "${#found_tables[@]}${#found_buckets[@]}" != 00 ] ||
    fail "there is no stack $stack in account $account, region $region, and nothing that it left"

if [ "${YES:-}" != 1 ]; then
    [ -t 0 ] || fail "nobody is here to confirm; YES=1 confirms"
    say "This removes what there is of $stack in account $account, region $region: ${state:+the stack; }its secrets; its functions;" \
        "tables with all that sleeps in them: ${found_tables[*]-}; buckets: ${found_buckets[*]-}"
    read -r -p "Type the stage to go on: " typed
    [ "$typed" = "$STAGE" ] || fail "nothing was removed"
fi

# Whatever happens from here on, the same call goes on.
trap 'status=$?; rm -rf "$private"; [ "$status" = 0 ] || say "this came to no end: make destroy STAGE=$STAGE goes on" >&2' EXIT
# A bus that still has rules cannot be removed. Whatever runs makes some: the sweep those again that graphs declare.
if [ -n "$state" ]; then
    for function in sweep inbound signal wakeup; do
        # There is none where the stack was never whole.
        aws lambda put-function-concurrency --function-name "$stack-$function" --reserved-concurrent-executions 0 >/dev/null 2>&1 ||
            say "$stack-$function is not there, or goes on until the stack is gone (lambda:PutFunctionConcurrency)"
    done
    list_rules
fi
# The stack's own rules go with the stack.
for rule in $rules; do
    case "$rule" in dormouse-signal | dormouse-work | None) continue ;; esac
    aws events remove-targets --event-bus-name "$stack" --rule "$rule" --ids signal >/dev/null
    aws events delete-rule --event-bus-name "$stack" --name "$rule"
done
used=("$(told output TableName)" "$(told output WorkspaceBucket)")
if [ -n "$state" ]; then
    say "removing the stack $stack"
    aws cloudformation delete-stack --stack-name "$stack"
    # AWS' waiter gives up after an hour, and CloudFormation does not.
    until aws cloudformation wait stack-delete-complete --stack-name "$stack"; do
        look
        case "$state" in
            '') break ;;
            DELETE_IN_PROGRESS) say "CloudFormation still removes $stack: it is waited for" ;;
            *)
                fail "the stack $stack is $state and not removed: aws cloudformation describe-stack-events --stack-name $stack tells what" \
                    "keeps it. When that is mended or removed by hand, the same call goes on"
                ;;
        esac
        sleep "${LOOK_EVERY:-10}"
    done
fi
# The stack keeps its table, so that no mistake in a template can lose what sleeps.
for table in ${found_tables[@]+"${found_tables[@]}"}; do
    say "removing the table $table"
    aws dynamodb update-table --table-name "$table" --no-deletion-protection-enabled >/dev/null
    aws dynamodb wait table-exists --table-name "$table"
    aws dynamodb delete-table --table-name "$table" >/dev/null
    aws dynamodb wait table-not-exists --table-name "$table"
done
for bundles in ${found_buckets[@]+"${found_buckets[@]}"}; do
    say "removing the bundles in $bundles"
    # Every version of them: a bucket with one left cannot be removed.
    for kind in Versions DeleteMarkers; do
        listed=$(aws s3api list-object-versions --bucket "$bundles" --expected-bucket-owner "$account" --output text \
            --query "${kind}[].[Key, VersionId]")
        while read -r object version; do
            [ -z "$version" ] || aws s3api delete-object --bucket "$bundles" --expected-bucket-owner "$account" --key "$object" \
                --version-id "$version" >/dev/null
        done < <(sed '/^None/d' <<<"$listed")
    done
    aws s3api delete-bucket --bucket "$bundles" --expected-bucket-owner "$account"
done
say "removing the secrets of $STAGE"
left=()
for one in "${secrets_left[@]}"; do
    store=${one%% *}
    remove_secret "${one#* }" || left+=("$(secret_name "${one#* }")")
done
[ "${#left[@]}" -eq 0 ] || fail "these secrets could not be removed: ${left[*]}"
# The last: while they are there, it is known that something is left.
[ -z "$zips" ] || aws s3 rm --recursive --only-show-errors "s3://$bucket/$stack/"
if [[ $bucket = dormouse-artifacts-* ]] && has_bucket "$bucket"; then
    # Another stage may still have its functions there.
    aws s3api delete-bucket --bucket "$bucket" --expected-bucket-owner "$account" >/dev/null 2>&1 ||
        say "the bucket $bucket stays: other stages use it"
fi
for other in "${used[@]}"; do
    [ -z "$other" ] || [[ " ${found_tables[*]-} ${found_buckets[*]-} " = *" $other "* ]] ||
        say "$other stays: it was there before the stack used it"
done
say "nothing else of $stack is left"
