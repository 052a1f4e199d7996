#!/usr/bin/env bash
# Checks the template and the scripts beside it with pinned linters. A suppression stands beside what it is about, with
# its reason.
set -euo pipefail
cd "$(dirname "$0")"

tools=$(./venv.sh "$PWD/requirements-lint.txt")
"$tools/cfn-lint" template.yaml
# It must not ask its maker for anything: the checks are in the package.
"$tools/checkov" --framework cloudformation --file template.yaml --compact --quiet --skip-download
"$tools/shellcheck" ./*.sh ../functions/*.sh ../shared/cli/src/new/infra/build.sh ../tests/aws/*.sh ../tests/api/*.sh
echo "template and scripts: nothing to object to"
