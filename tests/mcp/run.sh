#!/usr/bin/env bash
# Judges our MCP client by the official conformance suite for clients, which comes from npm, pinned in package.json: the
# newest one that runs with Node 20.
#
#   CARGO    how Cargo is called (make test-mcp sets it)
set -euo pipefail
CDPATH='' cd "$(dirname "$0")"

modules=$(../../infra/node.sh "$PWD/package.json")
export DORMOUSE_MCP_CONFORMANCE=$modules/.bin/conformance
cd ../..
# shellcheck disable=SC2086
exec ${CARGO:-cargo} test --package dormouse-tools --test mcp -- conformance:: "$@"
