# shellcheck shell=bash
# Sourced by deploy.sh and destroy.sh: the secrets of a stage, in Parameter Store or in Secrets Manager. Needs account.sh,
# and in `store` and `key` where they are and what encrypts them.
#
# Each secret may have a second one beside it, which functions accept and sign nothing with: the next one while a new one
# is made known, afterwards the one before, until it is retired. `callback-secret-next` stands from the moment in which a new
# one is made known until it signs; no function reads it.
#
# They travel in files that only this user can read: never in arguments, which every process can see, and never in what
# CloudFormation is told.

: "${store:?parameter-store or secrets-manager}" "${secrets:?the path of the parameters}" "${key?}"
private=$(mktemp -d)
trap 'rm -rf "$private"' EXIT
made_up() { head -c 32 /dev/urandom | sha256sum | cut -c 1-48; }

# secret_name SECRET: what it is called in its store.
secret_name() {
    if [ "$store" = secrets-manager ]; then echo "dormouse/$STAGE/$1"; else echo "$secrets/$1"; fi
}

# secret_value SECRET: what it holds. It is 1 where there is none, and 2 where that could not be read, which is no "none".
secret_value() {
    local found refusal=$private/refusal
    if [ "$store" = secrets-manager ]; then
        aws secretsmanager get-secret-value --secret-id "$(secret_name "$1")" --query SecretString --output text 2>"$refusal" && return
        ! grep -q ResourceNotFoundException "$refusal" || return 1
        cat "$refusal" >&2
        return 2
    fi
    found=$(aws ssm get-parameters --with-decryption --names "$(secret_name "$1")" --query 'Parameters[0].Value' --output text) ||
        return 2
    [ "$found" != None ] || return 1
    printf '%s\n' "$found"
}

# any_secret SECRET: what it holds, and nothing where there is none; fails where that could not be read.
any_secret() {
    local status=0
    secret_value "$1" || status=$?
    [ "$status" -lt 2 ] || fail "the secret $(secret_name "$1") could not be read, and nothing was changed for it"
}

# has_secret SECRET: whether there is one; ends everything where that could not be read.
has_secret() {
    local status=0
    secret_value "$1" >/dev/null || status=$?
    [ "$status" -lt 2 ] || fail "the secret $(secret_name "$1") could not be read, and nothing was changed for it"
    return "$status"
}

# put_secret SECRET VALUE: it holds VALUE from now on.
put_secret() {
    local name value=$2 file=$private/secret.json with_key=''
    name=$(secret_name "$1")
    [[ $value != *[[:cntrl:]]* ]] || fail "the secret $name must be one line of text"
    value=${value//\\/\\\\}
    value=${value//\"/\\\"}
    if [ "$store" != secrets-manager ]; then
        # Bytes, whatever the letters are.
        [ "$(printf '%s' "$2" | wc -c)" -le 8192 ] || fail "the secret $name has more than 8,192 bytes, which is the most that Parameter" \
            "Store takes: SECRET_STORE=secrets-manager, for a new stack, takes 65,536"
        [ -z "$key" ] || with_key=$(printf ', "KeyId": "%s"' "$key")
        # Beyond 4,096 bytes a parameter costs five cents a month, and is refused unless that is asked for.
        printf '{"Name": "%s", "Type": "SecureString", "Tier": "Intelligent-Tiering", "Overwrite": true, "Value": "%s"%s}\n' \
            "$name" "$value" "$with_key" >"$file"
        aws ssm put-parameter --cli-input-json "file://$file" >/dev/null
    elif has_secret "$1"; then
        printf '{"SecretId": "%s", "SecretString": "%s"}\n' "$name" "$value" >"$file"
        aws secretsmanager put-secret-value --cli-input-json "file://$file" >/dev/null
    else
        [ -z "$key" ] || with_key=$(printf ', "KmsKeyId": "%s"' "$key")
        printf '{"Name": "%s", "SecretString": "%s"%s}\n' "$name" "$value" "$with_key" >"$file"
        aws secretsmanager create-secret --cli-input-json "file://$file" >/dev/null
    fi
    rm "$file"
}

# secrets_changed: when any of them was changed, as one line; fails where nobody tells.
secrets_changed() {
    local name names=() said changed=''
    for name in callback-secret callback-secret-second signal-key signal-key-second receipt-keys notifications; do
        names+=("$(secret_name "$name")")
    done
    if [ "$store" = secrets-manager ]; then
        for name in "${names[@]}"; do
            if said=$(aws secretsmanager describe-secret --secret-id "$name" --query LastChangedDate --output text 2>&1); then
                changed+="$said "
            elif [[ $said != *ResourceNotFoundException* ]]; then
                say "$said" >&2
                return 1
            fi
        done
    else
        changed=$(aws ssm get-parameters --names "${names[@]}" --query 'sort_by(Parameters, &Name)[].LastModifiedDate' --output text |
            tr '\n\t' '  ') || return
    fi
    printf '%s' "$changed"
}

# secrets_of KIND: names of the secrets of agents or vaults, which people put below the stage.
secrets_of() {
    if [ "$store" = secrets-manager ]; then
        aws secretsmanager list-secrets --filters "Key=name,Values=dormouse/$STAGE/$1/" --query 'SecretList[].Name' --output text
    else
        aws ssm get-parameters-by-path --path "$secrets/$1" --query 'Parameters[].Name' --output text
    fi | tr '\t' '\n' | sed "s,.*/$1/,$1/,; /^None\$/d; /^\$/d"
}

# remove_secret SECRET: there is none afterwards, or it fails and says why. A name of Secrets Manager is free again at once.
remove_secret() {
    local said
    if [ "$store" != secrets-manager ]; then
        aws ssm delete-parameters --names "$(secret_name "$1")" >/dev/null
    else
        said=$(aws secretsmanager delete-secret --secret-id "$(secret_name "$1")" --force-delete-without-recovery 2>&1 >/dev/null) ||
            # One that is not there, and one that is being deleted.
            [[ $said = *ResourceNotFoundException* || $said = *InvalidRequestException* ]] || { say "$said"; return 1; }
    fi
}

# find_secrets: whatever secrets the stage has in its store, those of agents and vaults as well, in `found_secrets`; ends everything
# where nobody tells.
find_secrets() {
    local kind listed
    found_secrets=(callback-secret callback-secret-second callback-secret-next signal-key signal-key-second receipt-keys notifications)
    for kind in agents vaults; do
        listed=$(secrets_of "$kind") || fail "nobody tells which secrets of $kind $STAGE has in $store: nothing was removed"
        # Names have no spaces.
        # shellcheck disable=SC2206
        found_secrets+=($listed)
    done
}
