#!/usr/bin/env bash
# Drives local mode with clients that others wrote: the SDK of A2A, WebSockets, Standard Webhooks.
#
#   DORMOUSE_BIN    the binary (make test-clients sets it)
set -euo pipefail
cd "$(dirname "$0")"

tools=$(../../infra/venv.sh "$PWD/clients-requirements.txt")
folder=$(mktemp -d)
export DORMOUSE_VAULT_default_HOOK=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw
"$DORMOUSE_BIN" dev --port 0 --no-tour --data "$folder/data" >"$folder/said" 2>"$folder/log" &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT

for _ in $(seq 300); do
    grep -q '^api key: ' "$folder/said" && break
    kill -0 "$server" 2>/dev/null || { cat "$folder/log" >&2; exit 1; }
    sleep 0.1
done
BASE=$(sed -n 's/^dormouse is ready at //p' "$folder/said")
KEY=$(sed -n 's/^api key: //p' "$folder/said")
[ -n "$KEY" ] || { echo "it does not start" >&2; cat "$folder/log" >&2; exit 1; }
export BASE KEY SERVER=$server
status=0
"$tools/python" clients.py "$@" || status=$?
if grep -q 'ended in a panic' "$folder/log"; then
    grep 'ended in a panic' "$folder/log" >&2
    status=1
fi
[ "$status" = 0 ] || tail -n 30 "$folder/log" >&2
exit "$status"
