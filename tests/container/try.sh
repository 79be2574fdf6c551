#!/usr/bin/env bash
# Starts an image as it should run in production, asks it for decisions, and stops it: tests/container/try.sh IMAGE [FLAGS OF run]
#
# The root cannot be written, the user has no rights, and there are no capabilities.
set -euo pipefail
cd "$(dirname "$0")/../.."
image=${1:?"name the image"}
shift
# shellcheck source=tests/container/engine.sh
. tests/container/engine.sh
name="tollkeeper-try-$$"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
address="http://127.0.0.1:$port"

fail() {
    echo "container: $*" >&2
    engine logs "$name" >&2 || true
    exit 1
}

# Whatever happens, nothing is left running.
trap 'engine rm -f -t 0 "$name" >/dev/null 2>&1 || true' EXIT

user=$(engine image inspect --format '{{.Config.User}}' "$image")
[ "$user" = 65532:65532 ] || fail "the image runs as \"$user\", not as a user without rights"

engine run --detach --name "$name" "${run_flags[@]}" "${read_only[@]}" --cap-drop ALL \
    --security-opt no-new-privileges "$@" "$image" serve --http "127.0.0.1:$port" --grpc 127.0.0.1:0 >/dev/null

for _ in $(seq 100); do
    if curl -fsS -o /dev/null "$address/healthz" 2>/dev/null; then break; fi
    [ "$(engine inspect --format '{{.State.Running}}' "$name")" = true ] || fail "it has ended"
    sleep 0.1
done

# The image's own health check, with the port of this test. It has no shell to run in.
check=$(engine image inspect --format '{{json .Config.Healthcheck.Test}}' "$image")
[ "$check" = '["CMD","/usr/local/bin/tollkeeper","health","http://127.0.0.1:8080/healthz"]' ] || fail "the health check is $check"
engine exec "$name" /usr/local/bin/tollkeeper health "$address/healthz" >/dev/null || fail "the health check does not pass"

# The rules in the image: five logins a minute from one address, and the sixth is denied.
for attempt in 1 2 3 4 5 6; do
    answer=$(curl -fsS -d '{"attributes": {"ip": "192.0.2.7", "path": "/login"}}' "$address/v1/check")
    expected='"allowed":true'
    [ "$attempt" -le 5 ] || expected='"allowed":false,"limiting":"login"'
    [[ $answer == *"$expected"* ]] || fail "attempt $attempt was answered $answer"
done

process=$(engine inspect --format '{{.State.Pid}}' "$name")
[ "$(awk '/^Uid:/ { print $2 }' "/proc/$process/status")" = 65532 ] || fail "the process is not user 65532"
[ "$(awk '/^CapEff:/ { print $2 }' "/proc/$process/status")" = 0000000000000000 ] || fail "the process has capabilities"
awk '$2 == "/" { print $4 }' "/proc/$process/mounts" | grep -q '^ro\b' || fail "the root can be written"

# SIGTERM ends it in order.
engine stop -t 10 "$name" >/dev/null
[ "$(engine inspect --format '{{.State.ExitCode}}' "$name")" = 0 ] || fail "it did not stop in order"
echo "container: $image starts, decides, and stops"
