"""Servers as children of this process: free ports, readiness, CPU time, and an end in every case."""

import ctypes
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

_started = []
_die_with_parent = ctypes.CDLL("libc.so.6", use_errno=True).prctl


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Process:
    """One server, with a folder of its own and its output in a file there."""

    def __init__(self, name, command, port, environment=None, folder=None):
        self.name, self.port = name, port
        self.folder = pathlib.Path(folder or tempfile.mkdtemp(prefix="tollkeeper-bench-"))
        self.log = self.folder / "output"
        with open(self.log, "wb") as log:
            self.child = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                env={**os.environ, **(environment or {})},
                # 1 is PR_SET_PDEATHSIG: nothing survives this program, not even when it is killed.
                preexec_fn=lambda: _die_with_parent(1, signal.SIGKILL),
            )
        _started.append(self)
        self._wait_until_ready()

    def _wait_until_ready(self):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self.child.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.02)
        output = self.log.read_text(errors="replace")[-800:].strip()
        self.stop()
        raise RuntimeError(f"{self.name} did not start: {output or 'no output'}")

    def cpu_ns(self):
        """CPU time of all threads of this process and its children."""
        return sum(_cpu_ns(pid) for pid in self.pids())

    def pids(self):
        found, children = [self.child.pid], _children()
        for pid in found:
            found += children.get(pid, [])
        return found

    def resident_mb(self):
        return sum(_resident_kb(pid) for pid in self.pids()) / 1024

    def stop(self):
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(3)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
        if self in _started:
            _started.remove(self)
        subprocess.run(["rm", "-rf", str(self.folder)], check=False)


def stop_all():
    for process in reversed(_started[:]):
        process.stop()


def _cpu_ns(pid):
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total += int(task.read_text().split()[0])
        except (OSError, IndexError):
            pass  # A thread that has just ended.
    return total


def _resident_kb(pid):
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")), 0)


def _children():
    children = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    return children
