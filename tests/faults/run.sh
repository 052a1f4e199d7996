#!/usr/bin/env bash
# Tells stories of whole turns through a fault proxy, in front of the embedded store and of an emulator of AWS; both
# programs are installed into a private environment. Arguments go to the test: 'by chance', --list.
#
#   ROUNDS    how often each story is told among faults that come by chance
#   RULES     a file with rules of the proxy, a JSON list, under which each story is told too
set -euo pipefail
CDPATH='' cd "$(dirname "$0")"

proxy=$(../../infra/venv.sh "$PWD/requirements.txt")/microburst
emulator=$(../../infra/venv.sh "$PWD/../aws/requirements.txt")/ministack
# As a part of the workspace, so that it shares what the other tests have compiled.
DORMOUSE_MICROBURST=$proxy DORMOUSE_MINISTACK=$emulator \
    "${CARGO:-cargo}" test --quiet --workspace --test wire_faults -- "$@"
