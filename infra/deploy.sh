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
#   SIGNAL_KEY, CALLBACK_SECRET   made up at the first deployment unless given, and kept until given again, as encrypted
#                  parameters below /dormouse/STAGE; of a stack that had them in its environment they are taken from there
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

# Secrets travel in files that only this user can read: never in arguments, which every process can see, and never in
# what CloudFormation is told.
private=$(mktemp -d)
trap 'rm -rf "$private"' EXIT
made_up() { head -c 32 /dev/urandom | sha256sum | cut -c 1-48; }

# put NAME VALUE FLAG: the encrypted parameter NAME holds VALUE from now on; FLAG says whether it may stand already.
put() {
    local value=$2
    [[ $value != *[[:cntrl:]]* ]] || fail "the secret for $1 must be one line of text"
    value=${value//\\/\\\\}
    value=${value//\"/\\\"}
    printf '{"Name": "%s", "Type": "SecureString", "Value": "%s"}\n' "$1" "$value" >"$private/parameter.json"
    aws ssm put-parameter --cli-input-json "file://$private/parameter.json" "$3" >/dev/null
    rm "$private/parameter.json"
}

# keep PARAMETER VARIABLE LEAST GIVEN: makes sure that the parameter stands. What is given counts; then what stands; then
# what an older stack has in its environment, with which addresses were signed that are out there; and for a new stack
# something that nobody can guess.
keep() {
    local name="$secrets/$1" value=$4 standing missing
    if [ -n "$value" ]; then
        [ "${#value}" -ge "$3" ] || fail "the secret for $name needs at least $3 bytes"
        standing=$(aws ssm get-parameters --with-decryption --names "$name" --query 'Parameters[0].Value' --output text)
        [ "$standing" != "$value" ] || return 0
        say "the parameter $name holds from now on what is given"
        put "$name" "$value" --overwrite
        return
    fi
    missing=$(aws ssm get-parameters --names "$name" --query 'InvalidParameters[0]' --output text)
    [ "$missing" != None ] || return 0
    if [ "$exists" = no ]; then
        say "making the parameter $name"
        value=$(made_up)
    else
        value=$(aws lambda get-function-configuration --function-name "$stack-signal" \
            --query "Environment.Variables.$2" --output text)
        [ "$value" != None ] || fail "the parameter $name is gone, and addresses and senders depend on what it held:" \
            "give it again, or another one and do without them (${2#DORMOUSE_}=...)"
        say "taking over the parameter $name from the environment of $stack-signal"
    fi
    put "$name" "$value" --no-overwrite
}

# Nor shall what is called below inherit them.
export -n CALLBACK_SECRET SIGNAL_KEY
exists=no
if aws cloudformation describe-stacks --stack-name "$stack" >/dev/null 2>&1; then exists=yes; fi
keep callback-secret DORMOUSE_CALLBACK_SECRET 32 "${CALLBACK_SECRET:-}"
keep signal-key DORMOUSE_SIGNAL_KEY 16 "${SIGNAL_KEY:-}"
changed=$(aws ssm get-parameters --names "$secrets/callback-secret" "$secrets/signal-key" \
    --query 'sort_by(Parameters, &Name)[].LastModifiedDate' --output text)
parameters=$private/parameters.json
{
    printf '["Stage=%s", "Architecture=%s", "ArtifactBucket=%s", "ArtifactPrefix=%s"' \
        "$STAGE" "$architecture" "$bucket" "$prefix"
    given() { [ -z "$2" ] || printf ', "%s=%s"' "$1" "$2"; }
    given SecretsChanged "${changed//$'\t'/ }"
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
say "the signal key: aws ssm get-parameter --with-decryption --name $secrets/signal-key" \
    "--query Parameter.Value --output text"
