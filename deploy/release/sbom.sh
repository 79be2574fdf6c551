#!/usr/bin/env bash
# What is linked into the binary: deploy/release/sbom.sh CARGO-CYCLONEDX FOLDER writes FOLDER/tollkeeper.cdx.json.
set -euo pipefail
cyclonedx=$(realpath "${1:?"name the program cargo-cyclonedx"}")
folder=$(realpath "${2:?"name the folder to write to"}")
cd "$(dirname "$0")/../.."
# It writes beside each manifest of the workspace, whatever is asked for.
trap 'rm -f crates/*/tollkeeper.cdx.json' EXIT
"$cyclonedx" cyclonedx --quiet --format json --spec-version 1.5 --no-build-deps --override-filename tollkeeper.cdx --manifest-path crates/server/Cargo.toml
mv crates/server/tollkeeper.cdx.json "$folder/tollkeeper.cdx.json"
python3 - "$folder/tollkeeper.cdx.json" <<'PYTHON'
import json, sys
document = json.load(open(sys.argv[1], encoding="utf-8"))
names = {component["name"] for component in document["components"]}
assert {"tokio", "rustls", "redis", "tollkeeper-core"} <= names, "the list lacks what is surely linked"
assert "proptest" not in names, "the list has what only tests use"
print(f"SBOM: {len(document['components'])} components")
PYTHON
