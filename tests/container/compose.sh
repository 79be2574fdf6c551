#!/usr/bin/env bash
# Starts Tollkeeper and Redis as deploy/docker/docker-compose.yml says, and asks: tests/container/compose.sh IMAGE [--volume A:B:ro ...]
#
# With podman-compose, in a network of its own without a way out, where both share one loopback; no registry is asked, so the image of
# Redis is made from this machine's redis-server.
set -euo pipefail
cd "$(dirname "$0")/../.."
image=${1:?"name the image"}
shift
if [ -z "${TOLLKEEPER_ALONE:-}" ]; then
    TOLLKEEPER_ALONE=yes exec unshare --net "$0" "$image" "$@"
fi
ip link set lo up
# shellcheck source=tests/container/engine.sh
. tests/container/engine.sh
podman_compose=("$PWD/target/tools/bin/python" -m podman_compose)
scratch=$(mktemp -d)

engine tag "$image" localhost/tollkeeper:latest
if ! engine image exists docker.io/library/redis:7-alpine; then
    root="$scratch/redis"
    for program in redis-server redis-cli; do
        path=$(realpath "$(command -v "$program")")
        install -D "$path" "$root/usr/bin/$program"
        for library in $(ldd "$path" | grep -o '/[^ ]*'); do
            install -D "$(realpath "$library")" "$root$library"
        done
    done
    mkdir -p "$root/data" "$root/tmp"
    tar -C "$root" -c . | engine import -q --change 'ENV PATH=/usr/bin' --change 'WORKDIR /data' - docker.io/library/redis:7-alpine >/dev/null
fi

# What differs from a machine with a network for containers: one loopback, and the name of Redis there.
{
    echo "services:"
    echo "  redis: { network_mode: host }"
    echo "  tollkeeper:"
    echo "    network_mode: host"
    echo "    extra_hosts: ['redis:127.0.0.1']"
    if [ $# -gt 0 ]; then
        echo "    volumes:"
        echo "      - ../rules.yaml:/etc/tollkeeper/rules.yaml:ro"
        for word in "$@"; do
            [ "$word" = --volume ] || echo "      - $word"
        done
    fi
} >"$scratch/here.yml"
{
    echo '#!/usr/bin/env bash'
    printf 'cd %q\n. tests/container/engine.sh\ncd - >/dev/null\nengine "$@"\n' "$PWD"
} >"$scratch/podman"
chmod +x "$scratch/podman"

compose() {
    "${podman_compose[@]}" --podman-path "$scratch/podman" --podman-run-args "--ulimit nofile=1024:1024 --ulimit nproc=1024:1024" \
        -f deploy/docker/docker-compose.yml -f "$scratch/here.yml" "$@" >>"$scratch/log" 2>&1
}

export TOLLKEEPER_ADMIN_TOKEN=a-token-that-is-long-enough-for-this
trap 'compose down -t 1 || true; rm -rf "$scratch"' EXIT
compose up -d --no-build redis tollkeeper || { cat "$scratch/log" >&2; exit 1; }

for _ in $(seq 100); do
    if curl -fsS -o /dev/null http://127.0.0.1:8080/readyz 2>/dev/null; then break; fi
    sleep 0.1
done
curl -fsS http://127.0.0.1:8080/readyz >/dev/null || { cat "$scratch/log" >&2; exit 1; }
for expected in true true true true true false; do
    answer=$(curl -fsS -d '{"attributes": {"ip": "192.0.2.7", "path": "/login"}}' http://127.0.0.1:8080/v1/check)

    [[ $answer == "{\"allowed\":$expected"* ]] || { echo "compose: $answer" >&2; exit 1; }
done
# It is Redis that counts.
redis-cli exists 'tollkeeper:{192.0.2.7}0:login' | grep -qx 1 || { echo "compose: Redis does not have the count" >&2; exit 1; }
echo "compose: Tollkeeper and Redis start and decide together"
