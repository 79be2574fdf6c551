#!/usr/bin/env bash
# What a package has beside the program: deploy/release/extras.sh PROGRAM FOLDER writes FOLDER/man and FOLDER/completions.
set -euo pipefail
program=${1:?"name the program"}
folder=${2:?"name the folder to write to"}
mkdir -p "$folder/man" "$folder/completions"
"$program" man --output "$folder/man" >/dev/null
"$program" completions bash >"$folder/completions/tollkeeper.bash"
"$program" completions zsh >"$folder/completions/_tollkeeper"
"$program" completions fish >"$folder/completions/tollkeeper.fish"
