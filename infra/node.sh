#!/usr/bin/env bash
# Prints the folder `node_modules` with what the package.json $1 pins, outside of the clone. The folder is named after its
# content: other pins are another folder, a half-made one is made anew. No package runs a script of its own.
set -euo pipefail

package=$1
command -v npm >/dev/null || { echo "node and npm are needed for this, and are not here" >&2; exit 1; }
sum=$(cat "$package" <(node --version) | sha256sum | cut -c 1-12)
folder="${XDG_CACHE_HOME:-$HOME/.cache}/dormouse/node-$sum"
mkdir -p "$(dirname "$folder")"
# Where two want it at the same time, one makes it, and the other one waits for that.
exec 9>"$folder.lock"
if command -v flock >/dev/null; then flock 9; fi
if [ ! -e "$folder/complete" ]; then
    echo "installing what $(basename "$(dirname "$package")")/package.json pins into $folder" >&2
    rm -rf "$folder"
    mkdir -p "$folder"
    cp "$package" "$folder/package.json"
    (cd "$folder" && npm install --no-audit --no-fund --no-package-lock --ignore-scripts --loglevel error >&2)
    touch "$folder/complete"
fi
echo "$folder/node_modules"
