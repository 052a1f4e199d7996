#!/usr/bin/env bash
# Deploys the built functions with the AWS command line, to whatever account and region it is set up for. What is not given
# keeps the value that it was given before, or the default of the template; `-` goes back to that default, which is nothing for
# names and addresses.
#
#   STAGE          which copy: the stack is dormouse-STAGE
#   ACCOUNT        the account that is meant: with credentials of another one nothing is done, here, by destroy.sh and by restore.sh.
#                  Without it who sits at a terminal is asked before a stack is made that is not there; YES=1 answers
#   ZIPS           the folder with inbound.zip, signal.zip, stream.zip and wakeup.zip; with tools.zip agents of published
#                  workspaces have native tools and actions
#   ARTIFACT_BUCKET  a bucket of this account and region for them and for the template; dormouse-artifacts-ACCOUNT-REGION, which
#                  is made where there is none
#   ARCHITECTURE   what they are built for: arm64 (the default) or x86_64
#   AUTHORIZATION  who may begin turns and send messages: KEYS (the default of a new stack; who has an API key), AWS_IAM
#                  (who signs requests) or NONE (everybody)
#   ALLOWED_ORIGINS               whose pages may ask /v1 from a browser, separated by commas; nobody's without it
#   ISSUERS        the issuers whose tokens are taken beside API keys, a JSON array (guide: Who may ask)
#   AUDIT_DAYS     for how many days it is kept who did what; not at all without it
#   ALARM_EMAIL, ALARM_TOPIC_ARN  who is told of alarms: an address, which has to confirm it, or a topic of Amazon SNS; nobody
#                  without
#   ALARMS         all of them (the default) or few
#   INVOCATIONS_ALARM_AT          calls of inbound, signal, wakeup, stream and socket in an hour beyond which there is an alarm; none
#                  without
#   TRACING        disabled: without traces of X-Ray, five dollars for each million; enabled (the default)
#   LOG_DAYS       for how many days logs are kept: 1, 3, 7, 14, 30 (the default), 60, 90, 180 or 365
#   TAGS           tags of everything in the stack, instead of those before: `team=agents cost-center=42`
#   PROTECTED      yes: nobody removes the stack before it is deployed with no
#
#   How much, and how fast:
#   THROTTLING_RATE, THROTTLING_BURST         requests a second and at once that the API takes; 1000 and 2000
#   RATE_KEY, RATE_TENANT                     requests a minute of one key, and of all keys of a tenant; any number without
#   SIGNALS_OF_TENANTS                        enabled: keys of tenants may send signals; four write units more for each of their waits
#   STREAMS_OF_TENANT                         streams that a tenant may have open in all processes; each counts for itself without
#   INBOUND_CONCURRENCY, STREAM_CONCURRENCY   how many of each are served at a time; 0 for no limit. A new stack in an
#   SIGNAL_CONCURRENCY, WAKEUP_CONCURRENCY    account that may run 1000 or more gives a tenth of what nobody
#                                             else reserved to all but inbound
#   SWEEP_CONCURRENCY                         the same for the sweep; 2 where the account can spare them
#   TURN_SECONDS   how long a turn may compute if no HTTP request waits for it; 150
#   READ_CAPACITY, WRITE_CAPACITY             units a second of a table that is provisioned, 25 to read at least; 0 (the
#                  default) pays by request
#   READ_CAPACITY_MOST, WRITE_CAPACITY_MOST   up to where it grows by itself
#   WARM_READS, WARM_WRITES                   units a second that the table is made ready for before anybody asks
#   STREAMING      disabled: without the function stream, where there are no function addresses
#   WEBHOOKS       enabled: events of sessions are sent to the webhooks that their clients name; disabled (the default)
#   SOCKETS        enabled: with a WebSocket API and the function socket, for which there is socket.zip; disabled (the default)
#   SOCKET_CONCURRENCY, SOCKET_THROTTLING_RATE   how many of its calls are served at a time, 0 for no limit, and how many
#                  frames a second it takes; 500
#
#   WORKSPACES     names of published workspaces whose agents are served, separated by commas; there is a bucket for their
#                  bundles then (`dormouse workspace publish`)
#   WORKSPACES_BUCKET  a bucket of this account for them that is there already: that of an earlier stack, or from before
#                  WORKSPACES=-. One that is named after the stage is found; `-` makes a new one all the same
#   BEDROCK_MODELS  models of Amazon Bedrock that their agents may ask, separated by commas: ids of models of this region, or
#                  ARNs of models and of inference profiles
#   VERSION_DAYS   for how many days their bucket keeps what was replaced, which is deleted then, and 0 for ever; 90 for a new
#                  one. One from before there was VERSION_DAYS keeps everything until this is given
#   TOOLS_CONCURRENCY, TOOLS_TIMEOUT          how many calls of their native tools are served at a time, 0 for no limit, and how
#                  many seconds one may take; 180
#
#   Addresses:
#   DOMAIN, CERTIFICATE_ARN, HOSTED_ZONE_ID   the name of the API, its certificate in this region, and its zone in Route 53
#   BASE_URL       what addresses that are given out begin with, for a proxy in front
#
#   Secrets, made up at the first deployment unless given, and kept until they are given or rotated. Of a stack that had them
#   in its environment they are taken from there. deploy.sh gives out no secret and shows none.
#   SIGNAL_KEY, CALLBACK_SECRET   other ones from now on; those before are accepted until they are retired
#   ROTATE         `callback-secret`, `signal-key` or both: the same with ones that are made up. Refused while the ones before
#                  are accepted: those have to be retired first
#   RETIRE         `callback-secret`, `signal-key` or both: those before are refused from now on
#   SECRET_STORE   parameter-store (the default) or secrets-manager; of a new stack
#   KMS_KEY_ARN    the key of your own that encrypts table, queues, logs, alarms, environments and new secrets. Where there was
#                  another one, that one stays in EARLIER_KMS_KEY_ARNS
#   EARLIER_KMS_KEY_ARNS          keys that the functions may use besides, separated by commas; `-` when nothing is encrypted with
#                  them any more (infra/README.md tells how to get there)
#   RECEIPTS       enabled: tasks and approvals leave signed receipts; disabled (the default). The keys that sign are the
#                  secret receipt-keys, made up where there is none, and never replaced by a deployment
#   RECEIPTS_KMS_KEY_ARN          the key of AWS KMS that signs them instead, of the spec ECC_NIST_EDWARDS25519
#   NOTIFICATIONS  enabled: people hear that they are asked, over the channels of the secret notifications; disabled (the
#                  default)
#   NOTIFICATIONS_FILE            what that secret holds from now on: a file with the JSON object of the channels
#   EMAIL_IDENTITY_ARN            the identity of Amazon SES that notifications by e-mail are sent from
#
#   Changing versions:
#   ROLLOUT        how a new version takes over: AtOnce, or in steps, LambdaCanary10Percent15Minutes, that alarms take
#                  back. Refused while such an alarm is raised: AtOnce then goes live without steps
#   TABLE_ARN      another table instead of the stack's own, for a new stack, with time to live, recovery (0.20 dollars a month per
#                  GB) and protection switched on by each deployment; infra/restore.sh adopt changes the table of one that runs.
#                  `-` is a new and empty one: again, which NEW_TABLE=yes has to confirm, or beside one that an earlier stack left
set -euo pipefail
# Files are named as they are seen from where this is called.
from=$PWD
CDPATH='' cd "$(dirname "$0")"
# shellcheck source-path=SCRIPTDIR source=account.sh
. ./account.sh
# shellcheck source-path=SCRIPTDIR source=changes.sh
. ./changes.sh

architecture=${ARCHITECTURE:-arm64}
zips=${ZIPS:?ZIPS must name the folder with the built functions}
[[ $zips = /* ]] || zips=$from/$zips
for function in inbound signal stream wakeup; do
    [ -f "$zips/$function.zip" ] || fail "$zips/$function.zip is missing; functions/build.sh makes it"
done
[[ ${TURN_SECONDS:--} =~ ^(-|[1-9][0-9]*)$ ]] || fail "TURN_SECONDS is a number of seconds, not $TURN_SECONDS"
[[ ${PROTECTED:-yes} =~ ^(yes|no)$ ]] || fail "PROTECTED is yes or no, not $PROTECTED"
# is_json KIND: whether what comes in is that, an array or an object. A function that cannot read what it is told does not start,
# and CloudFormation does not notice.
is_json() {
    ! python3 -c '' 2>/dev/null || python3 -c 'import json, sys
sys.exit(not isinstance(json.load(sys.stdin), {"array": list, "object": dict}[sys.argv[1]]))' "$1" 2>/dev/null
}
origin='(https?|HTTPS?)://[][A-Za-z0-9._:-]+|[*]'
[[ ${ALLOWED_ORIGINS:--} = - || $ALLOWED_ORIGINS =~ ^\ *($origin)\ *(,\ *($origin)\ *)*$ ]] ||
    fail "ALLOWED_ORIGINS names origins like https://app.example.com, without a path or a slash at their ends, separated by commas"
[[ ${ISSUERS:--} = - ]] || is_json array <<<"$ISSUERS" || fail "ISSUERS is no JSON array of issuers (guide: Who may ask)"
channels=${NOTIFICATIONS_FILE:-}
[[ ${channels:-/} = /* ]] || channels=$from/$channels
if [ -n "$channels" ]; then
    [ -f "$channels" ] || fail "NOTIFICATIONS_FILE: there is no file $channels"
    is_json object <"$channels" || fail "$channels holds no JSON object of channels (guide: Notifications)"
fi
for word in ${ROTATE:-} ${RETIRE:-}; do
    [[ $word =~ ^(callback-secret|signal-key)$ ]] || fail "ROTATE and RETIRE take callback-secret and signal-key, not $word"
done

look
exists=yes
case "$state" in
    # A change set that was never executed made only the name.
    '' | REVIEW_IN_PROGRESS) exists=no ;;
    *) takes_updates ;;
esac
store=$(standing SecretStore)
store=${store:-${SECRET_STORE:-parameter-store}}
[ "$store" != stack ] || fail "with SecretStore=stack the stack makes up its secrets, which this script cannot keep: deploy $stack with what" \
    "deployed it, Terraform or the CDK (infra/terraform/README.md tells how its secrets are replaced). Nothing was changed"
[[ $store =~ ^(parameter-store|secrets-manager)$ ]] || fail "SECRET_STORE is parameter-store or secrets-manager, not $store"
[ "${SECRET_STORE:-$store}" = "$store" ] ||
    fail "the secrets of $stack are in $store: addresses depend on them, and nothing moves them to $SECRET_STORE"
key=${KMS_KEY_ARN:-$(standing KmsKeyArn)}
[ "$key" != - ] || key=''
# What is encrypted with the key before stays so: the functions go on using it until somebody says that nothing is left.
earlier_keys=${EARLIER_KMS_KEY_ARNS:-$(standing EarlierKmsKeyArns)}
key_before=$(standing KmsKeyArn)
if [ -n "$key_before" ] && [ "$key_before" != "$key" ]; then
    [ -z "${EARLIER_KMS_KEY_ARNS:-}" ] || fail "EARLIER_KMS_KEY_ARNS is for a deployment that does not change KMS_KEY_ARN:" \
        "the key before, $key_before, is added to them now"
    [ -z "${ROTATE:-}${CALLBACK_SECRET:-}${SIGNAL_KEY:-}$channels" ] || fail "secrets are written with the next deployment:" \
        "processes that run may not use the key $key yet, with which they would be encrypted"
    earlier_keys="${earlier_keys:+$earlier_keys,}$key_before"
    say "the functions may go on using $key_before: what is encrypted with it is read until EARLIER_KMS_KEY_ARNS=-"
fi
# One that counts again is no earlier one.
earlier_keys=$(tr ',' '\n' <<<"$earlier_keys" | { grep -vxF -e "$key" || true; } | awk '!seen[$0]++' | paste -sd, -)
[ -n "$earlier_keys" ] || [ -z "$(standing EarlierKmsKeyArns)" ] || earlier_keys=-
# shellcheck source-path=SCRIPTDIR source=secrets.sh
. ./secrets.sh

# The table: that of the stack, or another one.
[[ ${TABLE_ARN:--} = - || $TABLE_ARN =~ ^arn:[a-z-]+:dynamodb:$region:$account:table/[A-Za-z0-9_.-]+$ ]] ||
    fail "TABLE_ARN names a table of this account and region, arn:$partition:dynamodb:$region:$account:table/NAME, and not $TABLE_ARN"
if [ "$exists" = no ] && [ -z "${TABLE_ARN:-}" ]; then
    tables_of_stage || fail "nobody tells whether there is a table of an earlier time (dynamodb:ListTables): TABLE_ARN= names it," \
        "TABLE_ARN=- makes a new one"
    [ "${#found_tables[@]}" -eq 0 ] || fail "there are tables of this stage of an earlier time: ${found_tables[*]}. Nothing that sleeps there" \
        "is in a new one: TABLE_ARN=arn:$partition:dynamodb:$region:$account:table/${found_tables[0]} goes on with it, TABLE_ARN=- makes a new one"
fi
other_table=${TABLE_ARN:-$(standing TableArn)}
[ "$other_table" != - ] || other_table=''
rollout=${ROLLOUT:-$(standing Rollout)}
capacity=(READ_CAPACITY WRITE_CAPACITY READ_CAPACITY_MOST WRITE_CAPACITY_MOST WARM_READS WARM_WRITES)
if [ -n "$other_table" ]; then
    for name in "${capacity[@]}"; do
        [[ ${!name:-0} = [-0] ]] || fail "$name is for a table that the stack makes, and has no effect on $other_table:" \
            "aws dynamodb update-table changes that"
        printf -v "$name" 0
    done
fi
if [ "$exists" = yes ] && [ "$other_table" != "$(standing TableArn)" ]; then
    [[ ${rollout:-AtOnce} = AtOnce ]] ||
        fail "with ROLLOUT=$rollout a part of all calls would use another table than the rest: STAGE=$STAGE infra/restore.sh adopt" \
            "${other_table##*/} changes the table of a stack that runs, or ROLLOUT=AtOnce"
    if [ -z "$other_table" ] && [ "${NEW_TABLE:-}" != yes ]; then
        fail "TABLE_ARN=- makes a new, EMPTY table: nothing that sleeps in $(standing TableArn) is in it, and neither is what slept" \
            "in the table that the stack made first, which is its own no longer (TABLE_ARN= with its ARN leads back to that)." \
            "NEW_TABLE=yes is for who means it"
    fi
fi
# The environment of a function has 4,096 bytes, of which the rest takes 900 at least. Ends of lines are not handed on.
listed=${ISSUERS:-$(standing Issuers)}${ALLOWED_ORIGINS:-$(standing AllowedOrigins)}${WORKSPACES:-$(standing Workspaces)}
[ "$(printf '%s' "$listed" | tr -d '\n\r\t' | wc -c)" -le 3200 ] || fail "ISSUERS, ALLOWED_ORIGINS and WORKSPACES have more than 3,200 bytes together:" \
    "they are in the environments of the functions, which Lambda lets have 4,096 each"
# The changelog tells why, first of all: the build before would begin again what this one has begun.
if [ "$exists" = yes ] && [[ ${rollout:-AtOnce} != AtOnce ]] && [ -z "$(standing SweepConcurrency)" ]; then
    fail "$stack has no function sweep yet, and its build must not run beside this one: ROLLOUT=AtOnce the first time;" \
        "ROLLOUT=$rollout with the next deployment goes in steps again"
fi
# CodeDeploy refuses a version, also one that mends things, while an alarm is raised that would take it back.
if [ "$exists" = yes ] && [[ ${rollout:-AtOnce} != AtOnce ]]; then
    raised=$(aws cloudwatch describe-alarms --state-value ALARM --alarm-name-prefix "$stack-" \
        --query 'MetricAlarms[].AlarmName' --output text | tr '\t' '\n' | grep -E "^$stack-[A-Za-z]+RolloutAlarm-" | paste -sd ' ' || true)
    [ -z "$raised" ] || fail "ROLLOUT=$rollout would be taken back at once, because these alarms are raised: $raised." \
        "ROLLOUT=AtOnce goes live without steps, also with what mends it; the next ROLLOUT=$rollout goes in steps again"
fi

# The bucket of workspaces: that of the stack, or one that is there already. What began with a bundle goes on with that bundle only.
bundles=${WORKSPACES_BUCKET:-$(standing WorkspaceBucketName)}
if [ -z "$bundles$(standing Workspaces)" ] && [[ ${WORKSPACES:--} != - ]]; then
    buckets_of_workspaces || fail "nobody tells whether there is a bucket of workspaces of an earlier time (s3:ListAllMyBuckets," \
        "s3:GetBucketLocation): WORKSPACES_BUCKET= names it, WORKSPACES_BUCKET=- makes a new one"
    [ "${#found_buckets[@]}" -le 1 ] || fail "there are several buckets of workspaces of this stage, ${found_buckets[*]}:" \
        "WORKSPACES_BUCKET= names one, WORKSPACES_BUCKET=- makes a new one"
    bundles=${found_buckets[0]-}
    [ -z "$bundles" ] || say "the bucket $bundles of an earlier time is used again; WORKSPACES_BUCKET=- makes a new one"
fi
if [[ ${bundles:--} != - ]]; then
    has_bucket "$bundles" || fail "there is no bucket $bundles for workspaces"
    [ -z "${VERSION_DAYS:-}" ] || fail "VERSION_DAYS is for a bucket that the stack makes, and has no effect on $bundles:" \
        "aws s3api put-bucket-lifecycle-configuration changes that"
fi

# With another profile than yesterday's a stage would be made once more, in another account.
if [ "$exists" = no ] && [ -z "${ACCOUNT:-}" ] && [ "${YES:-}" != 1 ] && [ -t 0 ]; then
    say "there is no stack $stack in account $account, region $region: this makes it there (ACCOUNT=$account says so)"
    read -r -p "Type the stage to go on: " typed
    [ "$typed" = "$STAGE" ] || fail "nothing was changed"
fi
bucket=$(bucket_of_artifacts)
if ! has_bucket "$bucket" "ARTIFACT_BUCKET= names another one."; then
    say "making the bucket $bucket for built functions"
    aws s3 mb "s3://$bucket" >/dev/null
    aws s3api put-public-access-block --bucket "$bucket" --expected-bucket-owner "$account" --public-access-block-configuration \
        BlockPublicAcls=true,IgnorePublicAcls=true,BlockPublicPolicy=true,RestrictPublicBuckets=true
fi
functions=(inbound signal stream wakeup)
tools=disabled
if [ -f "$zips/tools.zip" ]; then functions+=(tools) tools=enabled; fi
sockets=${SOCKETS:-$(standing Sockets)}
if [ "$sockets" = enabled ]; then
    [ -f "$zips/socket.zip" ] || fail "SOCKETS=enabled needs $zips/socket.zip"
    functions+=(socket)
fi
build=$(for function in "${functions[@]}"; do cat "$zips/$function.zip"; done | sha256sum | cut -c 1-16)
prefix="$stack/$build"
for function in "${functions[@]}"; do
    aws s3api put-object --bucket "$bucket" --expected-bucket-owner "$account" --key "$prefix/$function.zip" \
        --body "$zips/$function.zip" >/dev/null
done

# keep SECRET VARIABLE LEAST GIVEN: makes sure that the secret stands. What stands counts; then what is given; then what an
# older stack has in its environment, with which addresses were signed that are out there; and for a new stack something
# that nobody can guess.
keep() {
    local name value=$4
    name=$(secret_name "$1")
    [ -z "$value" ] || [ "${#value}" -ge "$3" ] || fail "the secret $name needs at least $3 bytes"
    if ! has_secret "$1"; then
        if [ -z "$value" ] && [ "$exists" = no ]; then
            say "making the secret $name"
            value=$(made_up)
        elif [ -z "$value" ]; then
            value=$(aws lambda get-function-configuration --function-name "$stack-signal" \
                --query "Environment.Variables.$2" --output text)
            [ "$value" != None ] || fail "the secret $name is gone, and addresses and senders depend on what it held:" \
                "give it again, or another one and do without them (${2#DORMOUSE_}=...)"
            say "taking over the secret $name from the environment of $stack-signal"
        fi
        put_secret "$1" "$value"
    fi
    # A reference of Parameter Store has to lead somewhere, also where a deployment ended in between.
    if [ "$store" = secrets-manager ] && ! has_secret "$1-second"; then
        value=$(secret_value "$1")
        put_secret "$1-second" "$value"
    fi
}

# next SECRET GIVEN: the one that shall count from now on; nothing where the one that stands stays. There is room for one that
# is accepted beside it, so the one before has to be retired first. What was begun and came to no end goes on.
next() {
    local stands before begun value=$2
    # Nothing of a shell that is asked for its output ends by itself.
    stands=$(any_secret "$1") || return
    begun=$(any_secret "$1-next") || return
    if [ -z "$value" ]; then
        if [[ " ${ROTATE:-} " != *" $1 "* ]] || [ "$exists" = no ]; then return; fi
        value=${begun:-$(made_up)}
    fi
    [ "$value" != "$stands" ] || return 0
    before=$(any_secret "$1-second") || return
    case "$before" in
        '' | "$stands" | "$value" | "$begun") ;;
        *)
            [[ " ${RETIRE:-} " == *" $1 "* ]] ||
                fail "the $1 before is still accepted, and another one would end that: first RETIRE=$1, when nobody depends" \
                    "on it any more; or ROTATE=$1 RETIRE=$1, which refuses at once what both of them were good for"
            ;;
    esac
    printf '%s\n' "$value"
}

# swap SECRET VALUE: VALUE counts from now on, and the one before is accepted. It is put aside first, so that none is lost
# on the way.
swap() {
    local before
    before=$(secret_value "$1")
    put_secret "$1-second" "$before"
    put_secret "$1" "$2"
}

parameters=$private/parameters.json
# given PARAMETER VALUE: hands a value on to the template, if there is one; its default for `-`.
given() {
    local value=$2
    [ -n "$value" ] || return 0
    if [ "$value" = - ]; then
        value=$(awk -v name="  $1:" '$0 == name { found = 1 } found && $1 == "Default:" { print $2; exit }' template.yaml | tr -d '"')
    fi
    printf ', "%s=%s"' "$1" "$value"
}

# in_json: text as it stands inside of a string of JSON.
in_json() { printf '%s' "$1" | tr -d '\n\r\t' | sed 's/\\/\\\\/g; s/"/\\"/g'; }

# A turn of the function ends before the function does.
longer() {
    if [[ ${TURN_SECONDS:--} = - ]]; then echo "${TURN_SECONDS:-}"; else echo $((TURN_SECONDS + 30 > $1 ? TURN_SECONDS + 30 : $1)); fi
}

# models_of_bedrock: what is given, ids as ARNs of models of this region.
models_of_bedrock() {
    [ "${BEDROCK_MODELS:-}" != - ] || { echo -; return; }
    tr ',' '\n' <<<"${BEDROCK_MODELS:-}" | sed -E "/^ *$/d; s/^ +| +$//g; /^arn:/!s|^|arn:$partition:bedrock:$region::foundation-model/|" | paste -sd, -
}

# tenth: of what nothing else in the account has reserved, for a new stack where the account may run a lot: then neither
# streams nor requests can take from callbacks and wake-ups what they need. Another stack gets a tenth of the rest.
limit=$(aws lambda get-account-settings --query AccountLimit.ConcurrentExecutions --output text)
unreserved=$(aws lambda get-account-settings --query AccountLimit.UnreservedConcurrentExecutions --output text)
[[ $unreserved =~ ^[0-9]+$ ]] || unreserved=$limit
tenth() { if [ "$exists" = no ] && [ "$limit" -ge 1000 ] && [ "$unreserved" -ge 400 ]; then echo $((unreserved / 10)); fi; }
if [ "$exists" = no ] && [ -z "$(tenth)" ]; then
    say "nothing is reserved for callbacks and wake-ups: the account may run $limit functions at a time, of which $unreserved are not" \
        "reserved; SIGNAL_CONCURRENCY and WAKEUP_CONCURRENCY do so all the same"
fi

# sweeps: how many are reserved for them where nothing is said yet. A reservation leaves 100 to the rest of the account.
sweeps() {
    [ -n "$(standing SweepConcurrency)" ] || [ "$unreserved" -lt 102 ] || echo 2
}

# version_days: what a stack with workspaces begins with that had no such setting: nothing that it keeps is deleted unasked.
version_days() {
    [ -z "$(standing Workspaces)" ] || [ -n "$(standing VersionDays)" ] || echo 0
}
if [ -z "${VERSION_DAYS:-}" ] && [ -n "$(version_days)" ]; then
    say "the bucket of workspaces keeps what was replaced for ever, as before; VERSION_DAYS=90 deletes what was replaced 90 days ago"
fi

deploy() {
    local changed release own=0 one before
    # Nothing that fails inside of a list of arguments would end this: what may is asked before.
    changed=$(secrets_changed) || fail "nobody tells when the secrets of $stack were changed, by which new processes begin that read them"
    {
        printf '["Stage=%s", "Architecture=%s", "ArtifactBucket=%s", "ArtifactPrefix=%s"' \
            "$STAGE" "$architecture" "$bucket" "$prefix"
        given SecretsChanged "$changed"
        given SecretStore "$store"
        given Receipts "${RECEIPTS:-}"
        given ReceiptsKmsKeyArn "${RECEIPTS_KMS_KEY_ARN:-}"
        given Notifications "${NOTIFICATIONS:-}"
        given EmailIdentityArn "${EMAIL_IDENTITY_ARN:-}"
        given KmsKeyArn "${KMS_KEY_ARN:-}"
        given EarlierKmsKeyArns "$earlier_keys"
        given InboundAuthorization "${AUTHORIZATION:-}"
        given AllowedOrigins "${ALLOWED_ORIGINS:-}"
        given ThrottlingRate "${THROTTLING_RATE:-}"
        given ThrottlingBurst "${THROTTLING_BURST:-}"
        given RateKey "${RATE_KEY:-}"
        given RateTenant "${RATE_TENANT:-}"
        given AuditDays "${AUDIT_DAYS:-}"
        given Issuers "$(in_json "${ISSUERS:-}")"
        given InboundConcurrency "${INBOUND_CONCURRENCY:-}"
        given SignalsOfTenants "${SIGNALS_OF_TENANTS:-}"
        given StreamsOfTenant "${STREAMS_OF_TENANT:-}"
        given StreamConcurrency "${STREAM_CONCURRENCY:-$(tenth)}"
        given SignalConcurrency "${SIGNAL_CONCURRENCY:-$(tenth)}"
        given WakeupConcurrency "${WAKEUP_CONCURRENCY:-$(tenth)}"
        given SweepConcurrency "${SWEEP_CONCURRENCY:-$(sweeps)}"
        given TurnSeconds "${TURN_SECONDS:-}"
        given SignalTimeout "$(longer 180)"
        given WakeupTimeout "$(longer 300)"
        given ReadCapacity "${READ_CAPACITY:-}"
        given WriteCapacity "${WRITE_CAPACITY:-}"
        given ReadCapacityMost "${READ_CAPACITY_MOST:-}"
        given WriteCapacityMost "${WRITE_CAPACITY_MOST:-}"
        given WarmReads "${WARM_READS:-}"
        given WarmWrites "${WARM_WRITES:-}"
        given Streaming "${STREAMING:-}"
        given Workspaces "${WORKSPACES:-}"
        given WorkspaceBucketName "$bundles"
        given BedrockModels "$(models_of_bedrock)"
        given Webhooks "${WEBHOOKS:-}"
        given Sockets "${SOCKETS:-}"
        given SocketConcurrency "${SOCKET_CONCURRENCY:-}"
        given SocketThrottlingRate "${SOCKET_THROTTLING_RATE:-}"
        given Tools "$tools"
        given ToolsConcurrency "${TOOLS_CONCURRENCY:-}"
        given ToolsTimeout "${TOOLS_TIMEOUT:-}"
        given DomainName "${DOMAIN:-}"
        given CertificateArn "${CERTIFICATE_ARN:-}"
        given HostedZoneId "${HOSTED_ZONE_ID:-}"
        given BaseUrl "${BASE_URL:-}"
        given Rollout "${ROLLOUT:-}"
        given TableArn "${TABLE_ARN:-}"
        given AlarmEmail "${ALARM_EMAIL:-}"
        given AlarmTopicArn "${ALARM_TOPIC_ARN:-}"
        given Alarms "${ALARMS:-}"
        given InvocationsAlarmAt "${INVOCATIONS_ALARM_AT:-}"
        given Tracing "${TRACING:-}"
        given VersionDays "${VERSION_DAYS:-$(version_days)}"
        given LogRetentionDays "${LOG_DAYS:-}"
    } >"$parameters"
    release=$(cat template.yaml "$parameters" | sha256sum | cut -c 1-16)
    # What is reserved from now on beyond what was is free no longer.
    for one in $(grep -oE '[A-Za-z]+Concurrency=[0-9]+' "$parameters" || true); do
        before=$(standing "${one%=*}")
        own=$((own + 10#${one#*=} - ${before:-0}))
    done
    # When four fifths of what nobody reserved are in use. No reason for new versions of functions.
    printf ', "Release=%s", "ConcurrencyAlarmAt=%s"]\n' "$release" $((limit - (unreserved - own) / 5)) >>"$parameters"
    say "deploying the stack $stack ($architecture) to account $account, region $region"
    aws cloudformation deploy --stack-name "$stack" --template-file template.yaml --s3-bucket "$bucket" \
        --s3-prefix "$stack/template" --capabilities CAPABILITY_IAM --no-fail-on-empty-changeset \
        --parameter-overrides "file://$parameters" --tags "${tags[@]}" ||
        { look && [[ $state = *_IN_PROGRESS ]] && settled && look && [ "$(standing Release)" = "$release" ]; } ||
        fail "the deployment failed: aws cloudformation describe-stack-events --stack-name $stack tells why"
}

# The command that deploys takes away the tags that it is not told. Those that begin with `aws:` are given by AWS.
tags=("dormouse-stage=$STAGE")
if [ -n "${TAGS:-}" ]; then
    [ "$TAGS" = - ] || read -r -a given_tags <<<"$TAGS"
    tags+=(${given_tags[@]+"${given_tags[@]}"})
elif [ "$exists" = yes ]; then
    while IFS=$'\t' read -r kind name value; do
        [ "$kind" = tag ] && [ "$name" != dormouse-stage ] && [[ $name != aws:* ]] || continue
        [[ $name != *=* ]] || fail "the tag $name of $stack cannot be handed on, because of its name: TAGS='team=agents' says which there are"
        tags+=("$name=$value")
    done <<<"$described"
fi

# prune FUNCTION: removes its versions that are older than the last ten; the alias keeps the one that it points at.
prune() {
    local live version versions
    live=$(aws lambda get-alias --function-name "$1" --name live --query FunctionVersion --output text)
    versions=$(aws lambda list-versions-by-function --function-name "$1" --query 'Versions[].Version' --output text)
    for version in $(tr '\t' '\n' <<<"$versions" | grep -v LATEST | sort -rn | tail -n +11); do
        [ "$version" = "$live" ] || aws lambda delete-function --function-name "$1" --qualifier "$version"
    done
}

# Nor shall what is called below inherit them.
export -n CALLBACK_SECRET SIGNAL_KEY
[ -z "$other_table" ] || settings "${other_table##*/}"
keep callback-secret DORMOUSE_CALLBACK_SECRET 32 "${CALLBACK_SECRET:-}"
keep signal-key DORMOUSE_SIGNAL_KEY 16 "${SIGNAL_KEY:-}"
# What signs receipts. A deployment makes it once: another one is a rotation, of which the keys before are a part.
receipts_key=${RECEIPTS_KMS_KEY_ARN:-$(standing ReceiptsKmsKeyArn)}
[ "$receipts_key" != - ] || receipts_key=''
if [ "${RECEIPTS:-$(standing Receipts)}" = enabled ] && ! has_secret receipt-keys; then
    [ "$(standing Receipts)" != enabled ] || fail "the secret $(secret_name receipt-keys) is gone: put back what it held;" \
        "without the keys before, nobody is told by /v1/keys what verifies the receipts that were issued"
    say "making the secret $(secret_name receipt-keys)"
    if [ -n "$receipts_key" ]; then
        # The last 32 bytes of the DER form are the key itself.
        public=$(aws kms get-public-key --key-id "$receipts_key" --query PublicKey --output text | base64 -d | tail -c 32 | base64)
        put_secret receipt-keys "$(printf '{"kms_key":"%s","public_key":"base64:%s"}' "$receipts_key" "$public")"
    else
        put_secret receipt-keys "$(head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n')"
    fi
fi
if [ "${RECEIPTS:-$(standing Receipts)}" = enabled ]; then
    named=$(secret_value receipt-keys | sed -n 's/.*"kms_key":"\([^"]*\)".*/\1/p')
    [ "$named" = "$receipts_key" ] || fail "the secret $(secret_name receipt-keys) is of ${named:-a key of its own}, and not of" \
        "${receipts_key:-one}: put what it holds into the file receipt-keys of a folder, let \`dormouse receipts rotate\` make" \
        "the next one there, with the keys before, and put that back"
fi
if [ -n "$channels" ]; then
    put_secret notifications "$(tr '\r\n\t' '   ' <"$channels")"
fi
if [ "${NOTIFICATIONS:-$(standing Notifications)}" = enabled ] && ! has_secret notifications; then
    fail "there is no secret $(secret_name notifications): NOTIFICATIONS_FILE=channels.json makes it (guide: Notifications)"
fi
secret=$(next callback-secret "${CALLBACK_SECRET:-}")
signal_key=$(next signal-key "${SIGNAL_KEY:-}")
if [ -n "$secret" ]; then
    # Every process has to know the new one before the first signs with it, or an address is refused that another gave out.
    say "making the next callback secret known; where this ends early, ROTATE=callback-secret goes on"
    put_secret callback-secret-next "$secret"
    put_secret callback-secret-second "$secret"
    deploy
    swap callback-secret "$secret"
    say "the next callback secret signs from now on; addresses of the one before are good until RETIRE=callback-secret"
fi
if [ -n "$signal_key" ]; then
    swap signal-key "$signal_key"
    say "the next signal key is good from now on, and so is the one before until RETIRE=signal-key"
fi
deploy
if [ -n "${RETIRE:-}" ]; then
    for word in $RETIRE; do
        say "only the present $word is good from now on"
        present=$(secret_value "$word")
        put_secret "$word-second" "$present"
    done
    deploy
    [[ " $RETIRE " != *" callback-secret "* ]] || remove_secret callback-secret-next
fi
begun=$(any_secret callback-secret-next)
present=$(secret_value callback-secret)
if [ -n "$begun" ] && [ "$begun" = "$present" ]; then
    remove_secret callback-secret-next
elif [ -n "$begun" ]; then
    say "a next callback secret is known and signs nothing yet: ROTATE=callback-secret goes on, RETIRE=callback-secret drops it"
fi
for function in inbound signal wakeup sweep; do prune "$stack-$function"; done
case "${PROTECTED:-}" in
    yes) aws cloudformation update-termination-protection --enable-termination-protection --stack-name "$stack" >/dev/null ;;
    no) aws cloudformation update-termination-protection --no-enable-termination-protection --stack-name "$stack" >/dev/null ;;
    '') ;;
esac

aws cloudformation describe-stacks --stack-name "$stack" \
    --query 'Stacks[0].Outputs[].[OutputKey,OutputValue]' --output text
look
# CloudFormation leaves them as it finds them.
stopped=()
for function in inbound signal wakeup sweep; do
    most=$(aws lambda get-function-concurrency --function-name "$stack-$function" --query ReservedConcurrentExecutions --output text 2>/dev/null) ||
        most=''
    [ "$most" != 0 ] || stopped+=("$stack-$function")
done
[ "${#stopped[@]}" -eq 0 ] ||
    say "STOPPED, as restore.sh stop left them: ${stopped[*]}. STAGE=$STAGE infra/restore.sh start lets them run again"
# answers FUNCTION EVENT: whether it answers an event that changes nothing. What it cannot start with CloudFormation does not notice.
# A role that is new needs some seconds until it counts.
patience=6
answers() {
    local failed refusal=$private/refusal
    printf '%s' "$2" >"$private/event.json"
    while :; do
        if failed=$(aws lambda invoke --function-name "$stack-$1" --qualifier live --payload "fileb://$private/event.json" \
            --query FunctionError --output text "$private/answer.json" 2>"$refusal"); then
            [ "$failed" != None ] || return 0
        elif grep -qE '\((AccessDenied|TooManyRequests)Exception\)' "$refusal"; then
            say "nobody looked whether $stack-$1 starts: $(tr '\n' ' ' <"$refusal")"
            return 0
        fi
        patience=$((patience - 1))
        [ "$patience" -gt 0 ] || return 1
        sleep "${LOOK_EVERY:-10}"
    done
}
silent=()
for function in inbound signal wakeup; do
    [[ " ${stopped[*]-} " != *" $stack-$function "* ]] || continue
    event='{"version": "2.0", "rawPath": "/health", "requestContext": {"http": {"method": "GET"}}}'
    # No invocation has that id.
    [ "$function" != wakeup ] || event='{"dormouse_wakeup": {"invocation_id": "deployment-looks", "generation": 1}}'
    answers "$function" "$event" || silent+=("$stack-$function")
done
[ -n "$(standing AlarmEmail)$(standing AlarmTopicArn)" ] || say "nobody is told of alarms: ALARM_EMAIL or ALARM_TOPIC_ARN says who is"
if [ "$store" = secrets-manager ]; then
    say "the signal key: aws secretsmanager get-secret-value --secret-id $(secret_name signal-key)" \
        "--query SecretString --output text"
else
    say "the signal key: aws ssm get-parameter --with-decryption --name $(secret_name signal-key)" \
        "--query Parameter.Value --output text"
fi
[ "${#silent[@]}" -eq 0 ] ||
    fail "$stack is deployed, and does not work: no answer of ${silent[*]}. What a function cannot start with is told in the log group" \
        "/dormouse/$stack/functions: aws logs filter-log-events --log-group-name /dormouse/$stack/functions --filter-pattern '\"cannot start\"'" \
        "--query 'events[].message'. Deploy it again with what it needs"
