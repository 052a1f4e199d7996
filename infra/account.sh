# shellcheck shell=bash
# Sourced by the scripts beside it: who we are, and what things are called.

say() { printf '%s\n' "$*"; }
fail() {
    printf 'cannot go on: %s\n' "$*" >&2
    exit 1
}
# The command line of AWS ends by a code of its own when it is interrupted, which bash takes for any failure and goes on where that is
# no end. What is removed at the end is removed, whoever interrupts again.
trap 'trap "" INT; printf "interrupted: what AWS was told before goes on there\n" >&2; exit 130' INT

: "${STAGE:?STAGE must name the copy, for example STAGE=dev}"
[[ $STAGE =~ ^[a-z][a-z0-9-]{0,19}$ ]] || fail "STAGE must be a small letter, then up to 19 small letters, digits or dashes"
command -v aws >/dev/null || fail "the AWS command line (aws) is not installed"
region=${AWS_REGION:-${AWS_DEFAULT_REGION:-$(aws configure get region || true)}}
[ -n "$region" ] || fail "no region is set; AWS_REGION sets one"
# The files that it is given are UTF-8, whatever language this shell speaks.
export AWS_REGION=$region AWS_DEFAULT_REGION=$region AWS_PAGER='' AWS_CLI_FILE_ENCODING=UTF-8
identity=$(aws sts get-caller-identity --query '[Account, Arn]' --output text) ||
    fail "the AWS command line has no working credentials; aws sts get-caller-identity says why"
account=$(cut -f 1 <<<"$identity")
[ "${ACCOUNT:-$account}" = "$account" ] || fail "these credentials are of account $account, and ACCOUNT=$ACCOUNT is meant: nothing was changed." \
    "AWS_PROFILE= names the credentials of another one"

# All are used by the scripts that source this. The partition is `aws` but in China and in the regions of governments.
# shellcheck disable=SC2034
stack="dormouse-$STAGE" partition=$(cut -f 2 <<<"$identity" | cut -d : -f 2) secrets="/dormouse/$STAGE"

# look: finds out what the stack is, for those below. `state` is its state, and empty where CloudFormation itself says that there is
# no such stack. Whatever else goes wrong is no "none": who takes it for that makes secrets anew and loses settings.
look() {
    if described=$(aws cloudformation describe-stacks --stack-name "$stack" --output text --query "Stacks[0].[['state', StackStatus],
        ['protected', to_string(EnableTerminationProtection)], Parameters[].['parameter', ParameterKey, ParameterValue],
        Outputs[].['output', OutputKey, OutputValue], Tags[].['tag', Key, Value]]" 2>&1); then
        state=$(told state)
        [ -n "$state" ] || fail "nobody tells what the stack $stack is: $described"
    elif [[ $described = *ValidationError*"does not exist"* ]]; then
        described='' state=''
    else
        fail "nobody tells whether there is a stack $stack (cloudformation:DescribeStacks). Begin again when this works:" \
            "aws cloudformation describe-stacks --stack-name $stack. $described"
    fi
}
# told KIND NAME: what it is in the stack; nothing where there is none.
told() {
    if [ $# = 1 ]; then
        awk -F '\t' -v kind="$1" '$1 == kind { print $2 }' <<<"$described"
    else
        awk -F '\t' -v kind="$1" -v name="$2" '$1 == kind && $2 == name { print $3 }' <<<"$described"
    fi
}
# standing PARAMETER: what it is set to.
standing() { told parameter "$1"; }

# has_bucket BUCKET: whether there is a bucket of that name in this account; ends everything where it is of another one, because
# anybody may have made it, and where nobody tells.
has_bucket() {
    local said
    if said=$(aws s3api head-bucket --bucket "$1" --expected-bucket-owner "$account" 2>&1 >/dev/null); then return; fi
    [[ $said != *"(404)"* && $said != *NoSuchBucket* ]] || return 1
    # An answer without words: of credentials that have expired it is 400.
    [[ $said = *"(403)"* ]] || fail "nobody tells whether there is a bucket $1: nothing was written into it or removed from it. Begin again when" \
        "this works: aws s3api head-bucket --bucket $1; with credentials that have expired it is Bad Request. $said"
    fail "the bucket $1 is of another account than $account, or may not be looked at (s3:ListBucket): nothing was written into it or" \
        "removed from it. ${2:-} $said"
}
# bucket_of_artifacts: where built functions are: the bucket that is given, that of the stack, or one that is named after the account.
bucket_of_artifacts() {
    local standing
    standing=$(standing ArtifactBucket)
    echo "${ARTIFACT_BUCKET:-${standing:-dormouse-artifacts-$account-$region}}"
}

# buckets_of_workspaces: those that a stack of this stage made in this region, in `found_buckets`; fails where nobody tells.
buckets_of_workspaces() {
    local one listed place
    found_buckets=()
    listed=$(aws s3api list-buckets --query 'Buckets[].Name' --output text) || return
    for one in $listed; do
        # Stages of other regions name theirs the same.
        [[ $one =~ ^$stack-workspacebucket-[a-z0-9]+$ ]] || continue
        place=$(aws s3api get-bucket-location --bucket "$one" --expected-bucket-owner "$account" --query LocationConstraint --output text) ||
            return
        [ "${place/None/us-east-1}" != "$region" ] || found_buckets+=("$one")
    done
}

# tables_of_stage: those that stacks of this stage and restore.sh made in this region, in `found_tables`; fails where nobody tells.
tables_of_stage() {
    local one listed
    found_tables=()
    listed=$(aws dynamodb list-tables --query TableNames --output text) || return
    for one in $listed; do
        [[ ! $one =~ ^$stack-(StateTable(-[A-Z0-9]+)?|restored-[0-9]{8}T[0-9]{6}Z)$ ]] || found_tables+=("$one")
    done
}
