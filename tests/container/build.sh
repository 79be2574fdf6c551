#!/usr/bin/env bash
# Builds the image of deploy/docker/Dockerfile from a binary that exists: tests/container/build.sh BINARY TAG
set -euo pipefail
cd "$(dirname "$0")/../.."
binary=${1:?"name the binary"}
tag=${2:?"name the tag"}
# shellcheck source=tests/container/engine.sh
. tests/container/engine.sh
stage=$(mktemp -d)
trap 'rm -r "$stage"' EXIT
mkdir -p "$stage/etc/ssl/certs"
cp /etc/ssl/certs/ca-certificates.crt "$stage/etc/ssl/certs/"
# Without debug information: an image of a build for development would have hundreds of megabytes.
strip -o "$stage/tollkeeper" "$binary"
# OCI images have no health check; Docker's format does.
format=()
[ "${CONTAINER_ENGINE:-podman}" != podman ] || format=(--format docker)
engine_build -q "${format[@]}" --build-context "build=$stage" -f deploy/docker/Dockerfile -t "$tag" . >/dev/null
# What earlier builds left under the same tag takes hundreds of megabytes.
engine image prune -f >/dev/null
