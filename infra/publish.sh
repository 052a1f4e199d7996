#!/usr/bin/env bash
# Writes what the Terraform module and the CDK construct know of the template; with --check it only tells whether that is
# up to date.
set -euo pipefail
CDPATH='' cd "$(dirname "$0")"

tools=$(./venv.sh "$PWD/requirements-lint.txt")
PYTHONDONTWRITEBYTECODE=1 "$tools/python" publish.py "$@"
