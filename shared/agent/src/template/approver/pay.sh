# Pays: here it writes a line into the ledger of the workspace. The input is JSON on the standard input; the key in
# DORMOUSE_IDEMPOTENCY_KEY is the same when a call is made again, so that a bank can tell.
set -eu
ledger=../../../ledger.csv
input=$(cat)
[ -e "$ledger" ] || echo 'key,payment' > "$ledger"
if grep -q "^$DORMOUSE_IDEMPOTENCY_KEY," "$ledger"; then
    echo 'It was paid before.'
    exit 0
fi
printf '%s,"%s"\n' "$DORMOUSE_IDEMPOTENCY_KEY" "$(printf '%s' "$input" | sed 's/"/""/g')" >> "$ledger"
echo "Paid: $input"
