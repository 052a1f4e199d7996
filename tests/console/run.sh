#!/usr/bin/env bash
# Goes through the console in a headless Chromium: every view, every answer, cut streams, hostile content, accessibility.
# Browser, driver and axe come from npm, pinned in package.json. Pictures of the views are left in build/console.
#
#   DORMOUSE_BIN    the binary (make test-console sets it)
#   ONLY            only checks whose names hold this text
#   ASSETS          a folder whose files are served in the place of those in the binary, to see a change at once
#   SLEEPERS        how many sleep in the long inbox (10000)
set -euo pipefail
CDPATH='' cd "$(dirname "$0")"

MODULES=$(../../infra/node.sh "$PWD/package.json")
export MODULES
PICTURES="${PICTURES:-$(cd ../.. && pwd)/build/console}"
export PICTURES
mkdir -p "$PICTURES"
exec node main.mjs
