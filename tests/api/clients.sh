#!/usr/bin/env bash
# Drives local mode with clients that others wrote: the SDK of A2A, WebSockets, Standard Webhooks.
#
#   DORMOUSE_BIN    the binary (make test-clients sets it)
set -euo pipefail
CDPATH='' cd "$(dirname "$0")"

tools=$(../../infra/venv.sh "$PWD/clients-requirements.txt")
export DORMOUSE_VAULT_default_HOOK=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw
# shellcheck source=server.sh
. ./server.sh
export BASE=$address KEY=$key SERVER=$server
status=0
"$tools/python" clients.py "$@" || status=$?
ended "$status"
