#!/usr/bin/env bash
# Whether a program serves, decides and stops: deploy/release/starts.sh PROGRAM [ARGUMENTS OF SERVE]
#
# Needs nothing but the program: a clean system has no curl.
set -euo pipefail
program=${1:?"name the program"}
shift
log=$(mktemp)
"$program" serve --http 127.0.0.1:0 --grpc 127.0.0.1:0 --resp 127.0.0.1:0 "$@" >"$log" 2>&1 &
service=$!
trap 'kill $service 2>/dev/null || true; rm -f "$log"' EXIT
fail() {
    echo "$program: $*" >&2
    cat "$log" >&2
    exit 1
}
until grep -q 'listening on http://' "$log"; do
    kill -0 "$service" 2>/dev/null || fail "did not start"
    sleep 0.1
done
address=$(grep -o 'listening on http://[0-9.:]*' "$log" | cut -d ' ' -f 3)
"$program" health "$address"
# Three decisions over HTTP, by its own client.
answer=$("$program" bench "$address" --requests 3 --connections 1 --json plan=free)
[[ $answer == *'"allowed":3,'* ]] || fail "three requests were answered $answer"
kill "$service"
wait "$service" || fail "did not stop in order"
