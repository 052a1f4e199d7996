#!/usr/bin/env bash
# Builds the functions for Lambda: build/<arch>/<function>.zip, each with one executable called `bootstrap`.
#
#   functions/build.sh [arm64] [x86_64]    both when none is named
#   functions/build.sh untuned             for this machine only, as the tests build them: in a minute, and not to be deployed
#
# With COMPARE=1 the programs to compare with are built as well, into build/<arch>/compare/. Needs Python 3:
# cargo-lambda and zig, which compiles C and links for both machines, come from the package index, once.
set -euo pipefail
CDPATH='' cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }

# Where cargo puts programs, and the list of what runs at a start.
programs="$(mkdir -p "${CARGO_TARGET_DIR:-target}" && CDPATH='' cd "${CARGO_TARGET_DIR:-target}" && pwd)"
starts="$PWD/functions/link/starts.txt"

machine() {
    case "$1" in
        arm64) echo aarch64 ;;
        x86_64) echo x86_64 ;;
        *) say "there is no architecture $1: choose arm64, x86_64 or both"; exit 2 ;;
    esac
}

# The standard library for a target comes with the toolchain or from rustup's server, which may be out of reach.
can_target() {
    local library
    library="$(rustc --print target-libdir --target "$1")"
    compgen -G "$library/libstd-*.rlib" >/dev/null || {
        say "fetching the standard library for $1"
        timeout 120 rustup target add "$1" >/dev/null 2>&1 && compgen -G "$library/libstd-*.rlib" >/dev/null
    }
}

# The target for an architecture. With musl the C library is a part of the program: nothing is loaded and looked up at the
# start. Otherwise the C library is that of the runtime provided.al2023: older ones have threads and dynamic loading in
# libraries of their own, which a program made for them loads at every start.
target() {
    local musl gnu
    musl="$(machine "$1")-unknown-linux-musl" gnu="$(machine "$1")-unknown-linux-gnu"
    if can_target "$musl"; then
        echo "$musl"
    elif can_target "$gnu"; then
        say "without $musl, which 'rustup target add' did not get: the programs load the C library and start later"
        echo "$gnu.2.34"
    fi
}

# A program at a fixed address needs none of the 22,500 corrections that one which may lie anywhere begins with.
fixed="-C relocation-model=static"

# What Lambda's x86_64 machines have at least (AVX2): a program that asks the processor what it has waits for the hypervisor each time.
x86_64="-C target-cpu=x86-64-v3"

# What runs at a start lies side by side in a program: functions/link is the linker then, for the toolchain's own LLD. Names of
# functions have to tell all types for that. With the C library of the runtime it is zig that links, and in no order.
ordered="-C linker=dormouse-link -C linker-flavor=ld.lld -C link-self-contained=yes -C symbol-mangling-version=v0"

# The flags of rustc for a target.
flags() {
    echo "$fixed"
    [[ $1 != x86_64-* ]] || echo "$x86_64"
    [[ $1 != *-musl ]] || echo "$ordered"
}

# unlinked TARGET: programs that were linked before the list was changed are linked again; cargo does not know of it.
unlinked() {
    find "$programs/$1/lambda/deps" -maxdepth 1 -type f -name 'dormouse_*' ! -name '*.*' ! -newer "$starts" -delete 2>/dev/null || true
}

# build TARGET FOLDER PACKAGE...: packages of one call share what they compile, and the features of it.
build() {
    local target="$1" folder="$2" triple="${1%%.*}" out zip name package
    shift 2
    export "CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<< "$triple")_RUSTFLAGS=$(flags "$triple" | paste -sd ' ')"
    unlinked "$triple"
    out="$(mktemp -d)"
    # The profile says everything: cargo-lambda's own choices, panic=abort among them, stay out of it.
    PATH="$programs/debug:$tools:$PATH" cargo lambda build --locked --profile lambda --disable-optimizations \
        --target "$target" --output-format zip --lambda-dir "$out" "${@/#/--package=}"
    mkdir -p "$folder"
    for zip in "$out"/*/bootstrap.zip; do
        name="$(basename "$(dirname "$zip")")"
        # Zips are made of whatever earlier builds left there as well.
        package="$name"
        [[ "$name" != hello* ]] || package=dormouse-hello
        [[ "$name" != dormouse-tools ]] || package=dormouse-tools-function
        [[ " $* " == *" $package "* ]] || continue
        "$tools/python" functions/pack.py "$zip"
        mv "$zip" "$folder/${name#dormouse-}.zip"
    done
    rm -rf "$out"
}

# untuned: the programs that the tests of this machine start, packed.
untuned() {
    local folder name packing
    folder="build/$(uname -m | sed s/aarch64/arm64/)"
    cargo build --quiet --locked --workspace --bins
    rm -rf "$folder"
    mkdir -p "$folder"
    packing="$(mktemp -d)"
    for name in inbound signal socket stream wakeup tools; do
        strip -o "$packing/bootstrap" "$programs/debug/dormouse-$name"
        python3 -m zipfile -c "$folder/$name.zip" "$packing/bootstrap"
    done
    rm -rf "$packing"
}

if [ "$*" = untuned ]; then
    untuned
    exit
fi
[ $# -gt 0 ] || set -- arm64 x86_64
for arch in "$@"; do machine "$arch" >/dev/null; done
tools="$(infra/venv.sh functions/requirements-build.txt)"
cargo build --quiet --locked --package dormouse-link

built=0
for arch in "$@"; do
    rm -rf "build/$arch"
    target="$(target "$arch")"
    if [ -z "$target" ]; then
        say "SKIPPED $arch: the standard library for it cannot be had; 'rustup target add' did not work"
        continue
    fi
    say "building for $target (the first time takes some minutes)"
    export DORMOUSE_STARTS="$starts"
    build "$target" "build/$arch" dormouse-inbound dormouse-signal dormouse-socket dormouse-stream \
        dormouse-wakeup
    # A program of its own with little in it: it must not share the features of the others.
    build "$target" "build/$arch" dormouse-tools-function
    # What is compared with is linked as anybody would.
    unset DORMOUSE_STARTS
    if [ -n "${COMPARE:-}" ]; then build "$target" "build/$arch/compare" dormouse-hello; fi
    echo "${target%%.*}" > "build/$arch/target"
    built=$((built + 1))
done
[ "$built" -gt 0 ] || { say "nothing was built"; exit 1; }

find build -name '*.zip' | sort | while read -r zip; do
    printf '%-34s %9d bytes\n' "$zip" "$(wc -c < "$zip")"
done
