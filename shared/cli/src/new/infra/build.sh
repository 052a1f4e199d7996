#!/usr/bin/env bash
# Builds the functions of the package in the current folder for Lambda: build/FUNCTION.zip, each with one executable
# called `bootstrap`.
#
#   build.sh [arm64|x86_64]    arm64 when none is named
#
# Needs Python 3: cargo-lambda and zig, which compiles C and links for both machines, come from the package index, once.
set -euo pipefail
here="$(CDPATH='' cd "$(dirname "$0")" && pwd)"

case "${1:-arm64}" in
    arm64) machine=aarch64 ;;
    x86_64) machine=x86_64 ;;
    *) echo "there is no architecture $1: choose arm64 or x86_64" >&2; exit 2 ;;
esac
target="$machine-unknown-linux-musl"
library="$(rustc --print target-libdir --target "$target")"
if ! compgen -G "$library/libstd-*.rlib" >/dev/null && ! timeout 120 rustup target add "$target" >/dev/null 2>&1; then
    echo "without $target, which 'rustup target add' did not get: the programs load the C library and start later" >&2
    target="$machine-unknown-linux-gnu.2.34"
fi
tools="$("$here/venv.sh" "$here/requirements-build.txt")"
# Small, and quick to start. A node that panics fails as a node, and the sandbox lives on: that needs unwinding, which
# cargo-lambda's own choices would take away.
export CARGO_PROFILE_RELEASE_OPT_LEVEL=z CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 \
    CARGO_PROFILE_RELEASE_STRIP=true CARGO_PROFILE_RELEASE_PANIC=unwind
out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT
PATH="$tools:$PATH" cargo lambda build --release --disable-optimizations --target "$target" \
    --output-format zip --lambda-dir "$out" \
    --bin inbound --bin signal --bin socket --bin stream --bin wakeup
mkdir -p build
for function in inbound signal socket stream wakeup; do
    mv "$out/$function/bootstrap.zip" "build/$function.zip"
    printf '%-24s %9d bytes\n' "build/$function.zip" "$(wc -c < "build/$function.zip")"
done
