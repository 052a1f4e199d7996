#!/usr/bin/env bash
# Deploys the built functions with the AWS command line, to whatever account and region it is set up for.
#
#   STAGE          which copy: the stack is dormouse-STAGE
#   ZIPS           the folder with inbound.zip, signal.zip, stream.zip and wakeup.zip
#   ARCHITECTURE   what they are built for: arm64 (the default) or x86_64
#   AUTHORIZATION  who may begin turns and send messages: KEYS (the default of a new stack; who has an API key), AWS_IAM
#                  (who signs requests) or NONE (everybody); kept until given again
#   ALARM_EMAIL    who is told of alarms; optional
#   ALLOWED_ORIGINS               whose pages may ask /v1 from a browser, separated by commas; nobody's without it
#   THROTTLING_RATE, THROTTLING_BURST         requests a second and at once that the API takes; 1000 and 2000
#   INBOUND_CONCURRENCY, STREAM_CONCURRENCY   how many of each are served at a time; 0 (the default) for no limit
#   SIGNAL_KEY, CALLBACK_SECRET   made up at the first deployment unless given, and kept until given again
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source-path=SCRIPTDIR source=account.sh
. ./account.sh

architecture=${ARCHITECTURE:-arm64}
zips=${ZIPS:?ZIPS must name the folder with the built functions}
for function in inbound signal stream wakeup; do
    [ -f "$zips/$function.zip" ] || fail "$zips/$function.zip is missing; functions/build.sh makes it"
done

if ! aws s3api head-bucket --bucket "$bucket" >/dev/null 2>&1; then
    say "making the bucket $bucket for built functions"
    aws s3 mb "s3://$bucket" >/dev/null
    aws s3api put-public-access-block --bucket "$bucket" --public-access-block-configuration \
        BlockPublicAcls=true,IgnorePublicAcls=true,BlockPublicPolicy=true,RestrictPublicBuckets=true
fi
build=$(cat "$zips"/{inbound,signal,stream,wakeup}.zip | sha256sum | cut -c 1-16)
prefix="$stack/$build"
for function in inbound signal stream wakeup; do
    aws s3 cp --only-show-errors "$zips/$function.zip" "s3://$bucket/$prefix/$function.zip"
done

# Secrets travel in a file that only this user can read, not in arguments that every process can see. What is not
# given keeps its value.
parameters=$(mktemp)
trap 'rm -f "$parameters"' EXIT
secret() { head -c 32 /dev/urandom | sha256sum | cut -c 1-48; }
if ! aws cloudformation describe-stacks --stack-name "$stack" >/dev/null 2>&1; then
    CALLBACK_SECRET=${CALLBACK_SECRET:-$(secret)}
    SIGNAL_KEY=${SIGNAL_KEY:-$(secret)}
fi
{
    printf '["Stage=%s", "Architecture=%s", "ArtifactBucket=%s", "ArtifactPrefix=%s"' \
        "$STAGE" "$architecture" "$bucket" "$prefix"
    given() { [ -z "$2" ] || printf ', "%s=%s"' "$1" "$2"; }
    given CallbackSecret "${CALLBACK_SECRET:-}"
    given SignalKey "${SIGNAL_KEY:-}"
    given InboundAuthorization "${AUTHORIZATION:-}"
    given AllowedOrigins "${ALLOWED_ORIGINS:-}"
    given ThrottlingRate "${THROTTLING_RATE:-}"
    given ThrottlingBurst "${THROTTLING_BURST:-}"
    given InboundConcurrency "${INBOUND_CONCURRENCY:-}"
    given StreamConcurrency "${STREAM_CONCURRENCY:-}"
    given AlarmEmail "${ALARM_EMAIL:-}"
    printf ']\n'
} >"$parameters"

say "deploying the stack $stack ($architecture) to account $account, region $region"
aws cloudformation deploy --stack-name "$stack" --template-file template.yaml --s3-bucket "$bucket" \
    --s3-prefix "$stack/template" --capabilities CAPABILITY_IAM --no-fail-on-empty-changeset \
    --parameter-overrides "file://$parameters"
aws cloudformation describe-stacks --stack-name "$stack" \
    --query 'Stacks[0].Outputs[].[OutputKey,OutputValue]' --output text
say "the signal key: aws lambda get-function-configuration --function-name $stack-signal" \
    "--query Environment.Variables.DORMOUSE_SIGNAL_KEY"
