#!/usr/bin/env bash
# The npm packages for this machine: deploy/release/npm.sh ADDON FOLDER writes FOLDER/tollkeeper-VERSION.tgz and the one of the addon.
set -euo pipefail
addon=$(realpath "${1:?"name the addon"}")
folder=$(realpath "${2:?"name the folder to write to"}")
cd "$(dirname "$0")/../.."
platform=$(node -p '`${process.platform}-${process.arch}-gnu`')
made=$(mktemp -d)
trap 'rm -r "$made"' EXIT
node bindings/node/prebuild.mjs "$platform" "$addon" "$made"
npm pack --silent --pack-destination "$folder" "$made/$platform"
npm pack --silent --pack-destination "$folder" ./bindings/node
