#!/usr/bin/env bash
# Installs what `./run release` has made into clean Debian systems, as users do, and tries it there: tests/install/all.sh FOLDER
#
# A clean system is a container without anything but Debian's base (and Python or Node, where the package needs them): no compiler, no
# Rust, nothing of this machine. No network either, apart from its own loopback.
set -euo pipefail
folder=$(realpath "${1:?"name the folder with the artifacts"}")
cd "$(dirname "$0")/../.."
# shellcheck source=tests/container/engine.sh
. tests/container/engine.sh

command -v debootstrap >/dev/null || { echo "please install: debootstrap" >&2; exit 1; }
if ! engine image exists localhost/clean-debian; then
    root=$(mktemp -d)
    trap 'rm -rf "$root"' EXIT
    debootstrap --variant=minbase --include=python3,python3-pip,nodejs bookworm "$root/debian" >"$root/log" 2>&1 ||
        { tail -20 "$root/log" >&2; exit 1; }
    rm -rf "$root"/debian/var/cache/apt/archives/*.deb "$root"/debian/var/lib/apt/lists/*
    tar -C "$root/debian" -c . | engine import -q - localhost/clean-debian >/dev/null
    rm -rf "$root"
fi

# In a new system, with the artifacts and these scripts: in_clean_system COMMAND...
in_clean_system() {
    engine run --rm --network none --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 \
        --volume "$folder:/artifacts:ro" --volume "$PWD/tests/install:/try:ro" --volume "$PWD/deploy/release:/release:ro" \
        --volume "$(realpath "$(dirname "$(realpath "$(command -v npm)")")/.."):/npm:ro" localhost/clean-debian "$@"
}

for package in archive debian wheel npm; do
    in_clean_system bash "/try/$package.sh"
    echo "install: $package is installed in a clean system and works"
done
