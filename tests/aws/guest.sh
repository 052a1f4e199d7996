#!/usr/bin/env bash
# Deploys a package that `dormouse new` makes, by its own Makefile, to an emulator of AWS. DORMOUSE_BIN=program is the
# command line, which is built as `make run` builds it.
set -euo pipefail
CDPATH='' cd "$(dirname "$0")"

python=$(../../infra/venv.sh "$PWD/requirements.txt")/python
if [ -z "${DORMOUSE_BIN:-}" ]; then
    cargo build --quiet --locked --workspace --bin dormouse
    DORMOUSE_BIN=$(realpath "${CARGO_TARGET_DIR:-$PWD/../../target}")/debug/dormouse
fi
export DORMOUSE_BIN
PYTHONDONTWRITEBYTECODE=1 "$python" guest.py
