#!/usr/bin/env bash
# Whether a program serves, decides and stops: deploy/release/starts.sh PROGRAM [ARGUMENTS OF SERVE]
set -euo pipefail
program=${1:?"name the program"}
shift
log=$(mktemp)
"$program" serve --http 127.0.0.1:0 --grpc 127.0.0.1:0 --resp 127.0.0.1:0 "$@" >"$log" &
service=$!
trap 'kill $service 2>/dev/null || true; rm -f "$log"' EXIT
until grep -q 'http://[0-9.:]*' "$log"; do
    kill -0 "$service" 2>/dev/null || { echo "$program did not start" >&2; exit 1; }
    sleep 0.1
done
address=$(grep -o 'http://[0-9.:]*' "$log" | head -n 1)
"$program" health "$address"
# A decision over the network, without curl: its own load, three requests, with exit status 1 if a limit did not hold.
"$program" bench "$address" --requests 3 --connections 1 --json user_id=42 plan=free >/dev/null
kill "$service"
wait "$service"
