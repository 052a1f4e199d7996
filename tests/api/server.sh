#!/usr/bin/env bash
# Starts local mode for the tests here, to be sourced: `folder` holds its data, what it said and its log, `server` is its
# process, `address` and `key` are what its clients need. It ends with the script.
#
#   DORMOUSE_BIN    the binary

folder=$(mktemp -d)
"$DORMOUSE_BIN" dev --port 0 --no-tour --data "$folder/data" >"$folder/said" 2>"$folder/log" &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT

for _ in $(seq 1200); do
    grep -q '^api key: ' "$folder/said" && break
    kill -0 "$server" 2>/dev/null || { cat "$folder/log" >&2; exit 1; }
    sleep 0.1
done
address=$(sed -n 's/^dormouse is ready at //p' "$folder/said")
key=$(sed -n 's/^api key: //p' "$folder/said")
export address key
[ -n "$key" ] || { echo "it does not start" >&2; cat "$folder/log" >&2; exit 1; }

# Ends the script with status $1, or 1 if the server panicked meanwhile.
ended() {
    local status=$1
    if grep -q 'ended in a panic' "$folder/log"; then
        grep 'ended in a panic' "$folder/log" >&2
        status=1
    fi
    [ "$status" = 0 ] || tail -n 30 "$folder/log" >&2
    exit "$status"
}
