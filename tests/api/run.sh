#!/usr/bin/env bash
# Tries the API of local mode with requests made from its own OpenAPI document, good ones and bad ones: none may get a
# 5xx but 501, or an answer that breaks the document. Arguments go to schemathesis: --max-examples 500, --seed 7.
#
#   DORMOUSE_BIN    the binary (make test-api sets it)
set -euo pipefail
cd "$(dirname "$0")"

tools=$(../../infra/venv.sh "$PWD/requirements.txt")
folder=$(mktemp -d)
"$DORMOUSE_BIN" dev --port 0 --no-tour --data "$folder/data" >"$folder/said" 2>"$folder/log" &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT

for _ in $(seq 300); do
    grep -q '^api key: ' "$folder/said" && break
    kill -0 "$server" 2>/dev/null || { cat "$folder/log" >&2; exit 1; }
    sleep 0.1
done
address=$(sed -n 's/^dormouse is ready at //p' "$folder/said")
key=$(sed -n 's/^api key: //p' "$folder/said")
SIGNAL_KEY=$(sed -n 's/^signal key: //p' "$folder/said")
export SIGNAL_KEY
[ -n "$key" ] || { echo "it does not start" >&2; cat "$folder/log" >&2; exit 1; }

# Streams do not end by themselves, and the tests of the front know more of them.
status=0
"$tools/schemathesis" --config-file schemathesis.toml run "$address/openapi.json" \
    --header "Authorization: Bearer $key" \
    --header "Harn-Agents-Protocol-Version: agents-protocol-2026-04-25" \
    --exclude-operation-id-regex '^stream' \
    --exclude-checks negative_data_rejection,positive_data_acceptance,object_level_authorization,use_after_free,ensure_resource_availability \
    --phases coverage,fuzzing --max-examples 10 --seed 1 --request-timeout 20 \
    --suppress-health-check all --warnings off --output-sanitize true --no-color "$@" || status=$?
if grep -q 'ended in a panic' "$folder/log"; then
    grep 'ended in a panic' "$folder/log" >&2
    status=1
fi
exit "$status"
