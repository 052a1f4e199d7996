#!/usr/bin/env bash
# Removes everything that deploy.sh and the functions made for STAGE: the stack, the rules that graphs made, the table
# with everything that sleeps, the secrets, the built functions. Asks first; YES=1 answers.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source-path=SCRIPTDIR source=account.sh
. ./account.sh

look
[ -n "$state" ] || fail "there is no stack $stack in account $account, region $region"
bus=$(told output BusName)
table=$(told output TableName)
bundles=$(told output WorkspaceBucket)
# Both are read by secrets.sh.
# shellcheck disable=SC2034
store=$(standing SecretStore) key=''
# shellcheck source-path=SCRIPTDIR source=secrets.sh
. ./secrets.sh
[ "$(told protected)" != true ] || fail "the stack $stack is protected; deploy it with PROTECTED=no first"

# Without the stack nobody could begin this again: what cannot be listed is told while everything stands.
rules=$(aws events list-rules --event-bus-name "$bus" --query 'Rules[].Name' --output text) ||
    fail "nobody tells which rules $bus has (events:ListRules): nothing was removed"
find_secrets
if [ -n "$bundles" ] && ! said=$(aws s3api head-bucket --bucket "$bundles" 2>&1 >/dev/null); then
    [[ $said = *404* || $said = *NoSuchBucket* ]] || fail "nobody tells whether there is a bucket $bundles: nothing was removed. $said"
    bundles=''
fi
if [ -n "$bundles" ]; then
    aws s3api list-object-versions --bucket "$bundles" --max-items 1 >/dev/null ||
        fail "nobody tells what is in $bundles (s3:ListBucketVersions): nothing was removed"
fi

if [ "${YES:-}" != 1 ]; then
    [ -t 0 ] || fail "nobody is here to confirm; YES=1 confirms"
    read -r -p "This removes the stack $stack and the table $table with all that sleeps in it. Type the stage to go on: " typed
    [ "$typed" = "$STAGE" ] || fail "nothing was removed"
fi

# A bus that still has rules cannot be removed. The stack's own rules go with the stack.
for rule in $rules; do
    case "$rule" in dormouse-signal | dormouse-work | None) continue ;; esac
    aws events remove-targets --event-bus-name "$bus" --rule "$rule" --ids signal >/dev/null
    aws events delete-rule --event-bus-name "$bus" --name "$rule"
done
say "removing the stack $stack"
aws cloudformation delete-stack --stack-name "$stack"
aws cloudformation wait stack-delete-complete --stack-name "$stack"
# The stack keeps the table, so that no mistake in a template can lose what sleeps.
say "removing the table $table"
aws dynamodb update-table --table-name "$table" --no-deletion-protection-enabled >/dev/null
aws dynamodb wait table-exists --table-name "$table"
aws dynamodb delete-table --table-name "$table" >/dev/null
aws dynamodb wait table-not-exists --table-name "$table"
if [ -n "$bundles" ]; then
    say "removing the bundles in $bundles"
    # Every version of them: a bucket with one left cannot be removed.
    for kind in Versions DeleteMarkers; do
        listed=$(aws s3api list-object-versions --bucket "$bundles" --output text --query "${kind}[].[Key, VersionId]")
        while read -r object version; do
            [ -z "$version" ] || aws s3api delete-object --bucket "$bundles" --key "$object" --version-id "$version" >/dev/null
        done < <(sed '/^None/d' <<<"$listed")
    done
    aws s3 rb "s3://$bundles" >/dev/null
fi
say "removing the secrets of $STAGE"
done=0
remove_secrets || done=1
aws s3 rm --recursive --only-show-errors "s3://$bucket/$stack/"
# Another stage may still have its functions there.
aws s3 rb "s3://$bucket" >/dev/null 2>&1 || say "the bucket $bucket stays: other stages use it"
[ "$done" = 0 ] || fail "the stack and its table are gone; what is named above is left"
say "nothing of $stack is left"
