#!/usr/bin/env bash
# Synthesises infra/cdk/example.ts with the AWS CDK, without a network, deploys what comes out to an emulator of AWS, and has
# something approved there. ZIPS=folder takes the functions from there, DORMOUSE_BIN=program the command line; both are
# built otherwise, as run.sh does it.
set -euo pipefail
CDPATH='' cd "$(dirname "$0")"

python=$(../../infra/venv.sh "$PWD/requirements.txt")/python
modules=$(../../infra/node.sh "$PWD/../../infra/cdk/package.json")
architecture=$(uname -m)
architecture=${architecture/aarch64/arm64}
if [ -z "${ZIPS:-}" ]; then
    ../../functions/build.sh "$architecture"
    ZIPS=$PWD/../../build/$architecture
fi
ZIPS=$(realpath "$ZIPS")
if [ -z "${DORMOUSE_BIN:-}" ]; then
    cargo build --quiet --locked --workspace --bin dormouse
    DORMOUSE_BIN=$(realpath "${CARGO_TARGET_DIR:-$PWD/../../target}")/debug/dormouse
fi
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
mkdir "$built/cdk"
cp ../../infra/template.yaml "$built"
"$modules/.bin/tsc" --project ../../infra/cdk --outDir "$built/cdk" --typeRoots "$modules/@types" --baseUrl "$modules" \
    --ignoreDeprecations 5.0
export DORMOUSE_BIN ZIPS ARCHITECTURE="$architecture" NODE_PATH="$modules" CDK_OUTDIR="$built/out"
node "$built/cdk/example.js" >"$built/said" 2>&1 || { cat "$built/said"; exit 1; }
PYTHONDONTWRITEBYTECODE=1 "$python" cdk.py "$CDK_OUTDIR"
