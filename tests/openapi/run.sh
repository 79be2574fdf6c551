#!/usr/bin/env bash
# Holds /openapi.json against the service that serves it: everything described is asked for, with valid and invalid
# data, and every answer has to be as described. Ends with 0 only if no difference was found.
#
#   tests/openapi/run.sh http://127.0.0.1:8080 [ADMIN_TOKEN]
#
# Needs `schemathesis`, on the PATH or where ./run setup installs it. The same seed tries the same requests; set SEED and
# EXAMPLES to try others.
set -euo pipefail

base=${1:?"say where the service is, for example: $0 http://127.0.0.1:8080"}
token=${2:-}
here=$(cd "$(dirname "$0")" && pwd)

PATH="$PATH:$here/../../target/tools/bin"
command -v schemathesis >/dev/null || { echo "schemathesis is not installed; run ./run setup" >&2; exit 2; }

# Run where nothing is left behind: the tool keeps notes in the working directory.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

headers=()
[ -z "$token" ] || headers=(-H "Authorization: Bearer $token")

# Unknown rules are refused, so those of rules.yaml are named.
PYTHONPATH="$here" SCHEMATHESIS_HOOKS=known_rules schemathesis --config-file "$here/schemathesis.toml" run "${base%/}/openapi.json" \
  --max-examples "${EXAMPLES:-60}" \
  --seed "${SEED:-1}" \
  --request-timeout 15 \
  --wait-for-schema 10 \
  --continue-on-failure \
  --no-shrink \
  "${headers[@]}"
