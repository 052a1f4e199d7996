#!/usr/bin/env bash
# Builds the functions for this machine as they are built for Lambda, and takes them through the tour on an emulator of
# AWS. ZIPS=folder takes inbound.zip, signal.zip, stream.zip and wakeup.zip from there instead, DORMOUSE_BIN=program the
# command line, which is built as `make run` builds it.
set -euo pipefail
CDPATH='' cd "$(dirname "$0")"

python=$(../../infra/venv.sh "$PWD/requirements.txt")/python
if [ -z "${ZIPS:-}" ]; then
    architecture=$(uname -m)
    architecture=${architecture/aarch64/arm64}
    ../../functions/build.sh "$architecture"
    ZIPS=$PWD/../../build/$architecture
fi
if [ -z "${DORMOUSE_BIN:-}" ]; then
    cargo build --quiet --locked --workspace --bin dormouse
    DORMOUSE_BIN=$(realpath "${CARGO_TARGET_DIR:-$PWD/../../target}")/debug/dormouse
fi
export DORMOUSE_BIN
PYTHONDONTWRITEBYTECODE=1 "$python" main.py "$ZIPS"
