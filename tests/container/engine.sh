# The container engine of the tests, as the function `engine`. Sourced.
#
# CONTAINER_ENGINE=docker uses Docker. By default it is podman with storage of its own below target/, so that nothing of this machine's
# containers is touched, and with settings that also work inside a container: no overlay file system, no cgroups of systemd, runc.
containers="$PWD/${CARGO_TARGET_DIR:-target}/containers"

engine() {
    if [ "${CONTAINER_ENGINE:-podman}" = podman ]; then
        podman --root "$containers/storage" --runroot "$containers/run" --tmpdir "$containers/tmp" \
            --storage-driver vfs --cgroup-manager cgroupfs --runtime runc "$@"
    else
        "$CONTAINER_ENGINE" "$@"
    fi
}

# `engine build` with what the engine needs here.
engine_build() {
    if [ "${CONTAINER_ENGINE:-podman}" = podman ]; then
        engine build --isolation chroot "$@"
    else
        engine build "$@"
    fi
}

# Flags of `engine run`. The machine may not allow to raise limits, and podman leaves health checks to systemd.
run_flags=(--network host --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 --no-healthcheck)
# A root that cannot be written, with nothing in it that can: podman would add /tmp and others.
read_only=(--read-only)
[ "${CONTAINER_ENGINE:-podman}" != podman ] || read_only+=(--read-only-tmpfs=false)
