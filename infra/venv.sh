#!/usr/bin/env bash
# Prints the folder of the programs that the requirements file $1 pins, in a private Python environment outside of the
# clone. The environment is named after its content: other pins are another environment, a half-made one is made anew.
set -euo pipefail

requirements=$1
command -v python3 >/dev/null || { echo "python3 is needed for this, and is not here" >&2; exit 1; }
sum=$(cat "$requirements" <(python3 -V) | sha256sum | cut -c 1-12)
folder="${XDG_CACHE_HOME:-$HOME/.cache}/dormouse/python-$sum"
mkdir -p "$(dirname "$folder")"
# Where two want it at the same time, one makes it, and the other one waits for that.
exec 9>"$folder.lock"
if command -v flock >/dev/null; then flock 9; fi
if [ ! -e "$folder/complete" ]; then
    echo "installing what $(basename "$requirements") pins into $folder" >&2
    rm -rf "$folder"
    python3 -m venv "$folder" >&2
    "$folder/bin/pip" install --quiet --disable-pip-version-check --requirement "$requirements" >&2
    touch "$folder/complete"
fi
echo "$folder/bin"
