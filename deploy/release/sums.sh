#!/usr/bin/env bash
# The checksums of what is published: deploy/release/sums.sh FOLDER writes FOLDER/SHA256SUMS.
set -euo pipefail
cd "${1:?"name the folder"}"
rm -f SHA256SUMS
shopt -s nullglob
sha256sum -- *.tar.gz *.deb *.whl *.tgz >SHA256SUMS
cat SHA256SUMS
