#!/usr/bin/env bash
# Runs the tests of the functions on their arm64 programs, as they are deployed: boot, turns, callbacks, wake-ups, streams,
# secrets. Where this machine is none, QEMU makes one of each program (user mode); without `qemu-aarch64-static` it comes
# from Debian's packages, into a cache outside of the clone.
#
#   ZIPS=folder   zips that were built before; without it functions/build.sh builds them
set -euo pipefail
CDPATH='' cd "$(dirname "$0")/../.."

say() { printf '%s\n' "$*" >&2; }

# Prints the program that runs programs for arm64 here, or nothing where none is needed.
emulator() {
    [[ "$(uname -m)" != aarch64 && "$(uname -m)" != arm64 ]] || return 0
    command -v qemu-aarch64-static qemu-aarch64 2>/dev/null | head -n 1 | grep . && return 0
    local cache="${XDG_CACHE_HOME:-$HOME/.cache}/dormouse/qemu"
    local program="$cache/usr/bin/qemu-aarch64-static"
    if [ ! -x "$program" ]; then
        command -v apt-get >/dev/null || { say "qemu-aarch64-static is needed for this, and is not here: install QEMU's user mode"; return 1; }
        say "fetching qemu-user-static"
        mkdir -p "$cache"
        (cd "$cache" && { apt-get download -qq qemu-user-static || { apt-get update -qq && apt-get download -qq qemu-user-static; }; }) >&2
        dpkg -x "$cache"/qemu-user-static_*.deb "$cache"
        rm -f "$cache"/qemu-user-static_*.deb
    fi
    echo "$program"
}

emulator="$(emulator)"
if [ -z "${ZIPS:-}" ]; then
    functions/build.sh arm64
    ZIPS="$PWD/build/arm64"
fi
programs="$(mktemp -d)"
trap 'rm -rf "$programs"' EXIT
for function in inbound signal socket stream tools wakeup; do
    mkdir "$programs/$function"
    python3 -m zipfile -e "$ZIPS/$function.zip" "$programs/$function"
    chmod +x "$programs/$function/bootstrap"
    [ "$(od -An -tx1 -j18 -N2 "$programs/$function/bootstrap" | tr -d ' ')" = b700 ] || { say "$ZIPS/$function.zip holds no program for arm64"; exit 1; }
    printf '#!/bin/sh\nexec %s %s\n' "$emulator" "$programs/$function/bootstrap" > "$programs/dormouse-$function"
    chmod +x "$programs/dormouse-$function"
done
tests=(--test functions --test secrets)
if [ -z "$emulator" ]; then
    tests+=(--test tools_function)
else
    say "ignored: the tests of the function for tools; it starts itself anew, and this kernel starts no program for arm64"
fi
say "running the tests of the functions on arm64${emulator:+, which $emulator emulates}"
DORMOUSE_FUNCTIONS="$programs" "${CARGO:-cargo}" test --workspace "${tests[@]}"
