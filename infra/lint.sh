#!/usr/bin/env bash
# Checks the template, the scripts beside it and those of CI and of the tests, with pinned linters. A suppression stands beside
# what it is about, with its reason, and is of a rule that there is.
set -euo pipefail
CDPATH='' cd "$(dirname "$0")"

tools=$(./venv.sh "$PWD/requirements-lint.txt")
"$tools/cfn-lint" template.yaml
# It must not ask its maker for anything: the checks are in the package.
"$tools/checkov" --framework cloudformation --file template.yaml --compact --quiet --skip-download
# A suppression of a rule that there is not suppresses nothing, and tells readers otherwise.
known=$("$tools/checkov" --list --framework cloudformation 2>/dev/null)
grep -oE 'CKV2?_[A-Z]+_[0-9]+' template.yaml | sort -u | while read -r rule; do
    grep -qE "\\b$rule\\b" <<<"$known" || { echo "template.yaml suppresses $rule, and there is no such rule" >&2; exit 1; }
done
"$tools/shellcheck" -x -P SCRIPTDIR ./*.sh ../.ci/run ../functions/*.sh ../shared/cli/src/new/infra/build.sh ../tests/*/*.sh
"$tools/python" -B check/template.py
"$tools/python" -B check/scripts.py
# What others deploy with is made of the template, and is what their tools take.
./publish.sh --check
modules=$(./node.sh "$PWD/terraform/check/package.json")
NODE_PATH=$modules node terraform/check/check.cjs terraform
modules=$(./node.sh "$PWD/cdk/package.json")
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
cp template.yaml "$built"
"$modules/.bin/tsc" --outDir "$built/cdk" --project cdk --typeRoots "$modules/@types" --baseUrl "$modules" --ignoreDeprecations 5.0
# What comes out is linted here; CDK's own look at it has no place to say what is meant. With the parameters in their places
# conditions always hold or never do, and texts have nothing to fill in.
CDK_VALIDATION=false NODE_PATH=$modules node cdk/check.cjs "$built/cdk" "$built"
"$tools/cfn-lint" --ignore-checks W1020 W8003 -- "$built"/*.template.json
echo "template, scripts, module and construct: nothing to object to"
