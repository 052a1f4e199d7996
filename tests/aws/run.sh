#!/usr/bin/env bash
# Builds the functions for this machine, and takes them through the tour on an emulator of AWS. ZIPS=folder takes built
# ones: inbound.zip, signal.zip and wakeup.zip.
set -euo pipefail
cd "$(dirname "$0")"

python=$(../../infra/venv.sh "$PWD/requirements.txt")/python
if [ -z "${ZIPS:-}" ]; then
    target=${CARGO_TARGET_DIR:-$PWD/../../target}
    echo "building the functions"
    "${CARGO:-cargo}" build --release --locked -p dormouse-inbound -p dormouse-signal -p dormouse-wakeup
    ZIPS=$(mktemp -d)
    trap 'rm -rf "$ZIPS"' EXIT
    for function in inbound signal wakeup; do
        cp "$target/release/dormouse-$function" "$ZIPS/bootstrap"
        (cd "$ZIPS" && "$python" -m zipfile -c "$function.zip" bootstrap && rm bootstrap)
    done
fi
"$python" main.py "$ZIPS"
