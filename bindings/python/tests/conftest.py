"""Real parts: servers as children on free ports, in temporary folders, stopped by their own handle."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).resolve().parent


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def wait_for_port(port: int, process: subprocess.Popen[bytes], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
        time.sleep(0.05)
    raise TimeoutError(f"nobody listens on port {port}")


class Redis:
    """A Redis server that can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self.process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL)
        wait_for_port(self.port, self.process)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """The URL of a cluster of three servers."""
    nodes: list[subprocess.Popen[bytes]] = []
    ports = [free_port() for _ in range(3)]
    try:
        for port in ports:
            home = folder / str(port)
            home.mkdir()
            command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--cluster-enabled", "yes"]
            command += ["--cluster-port", str(free_port()), "--cluster-node-timeout", "1000"]
            nodes.append(subprocess.Popen(command, cwd=home, stdout=subprocess.DEVNULL))
            wait_for_port(port, nodes[-1])
        hosts = [f"127.0.0.1:{port}" for port in ports]
        command = ["redis-cli", "--cluster", "create", *hosts, "--cluster-yes"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=60)
        end = time.monotonic() + 60
        for port in ports:
            while b"cluster_state:ok" not in subprocess.check_output(["redis-cli", "-p", str(port), "cluster", "info"]):
                assert time.monotonic() < end, "the cluster does not come up"
                time.sleep(0.1)
        yield "redis+cluster://" + ",".join(hosts)
    finally:
        for node in nodes:
            node.kill()
            node.wait()


class Postgres:
    """A PostgreSQL server with an empty database, that can be stopped and started again."""

    def __init__(self) -> None:
        # Not in pytest's folder: another run of pytest that begins meanwhile makes that private again, and no other user gets in.
        self._temporary = tempfile.TemporaryDirectory(prefix="tollkeeper-postgres-")
        self.folder = folder = Path(self._temporary.name)
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        binaries = [*glob.glob("/usr/lib/postgresql/*/bin"), *os.environ["PATH"].split(os.pathsep)]
        self.bin = next(Path(one) for one in binaries if (Path(one) / "initdb").exists())
        # It refuses to run as root.
        self.user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--"] if os.getuid() == 0 else []
        if self.user:
            shutil.chown(folder, "nobody", "nogroup")
        self._run("initdb", "-D", str(folder / "data"), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N")
        self.start()
        self.sql("create database limits", "postgres")

    @property
    def url(self) -> str:
        return f"postgres://postgres@127.0.0.1:{self.port}/limits"

    def start(self) -> None:
        options = ["-D", str(self.folder / "data"), "-p", str(self.port), "-k", str(self.folder)]
        options += ["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]
        command = [*self.user, str(self.bin / "postgres"), *options]
        self.process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with contextlib.suppress(subprocess.CalledProcessError):
                self.sql("select 1", "postgres")
                return
            time.sleep(0.1)
        raise TimeoutError("Postgres does not start")

    def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait()

    def remove(self) -> None:
        self._temporary.cleanup()

    def sql(self, text: str, database: str = "limits") -> str:
        command = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-d", database, "-v", "ON_ERROR_STOP=1", "-qAtc", text]
        return self._run("psql", *command)

    def _run(self, program: str, *arguments: str) -> str:
        command = [*self.user, str(self.bin / program), *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=True)
        return done.stdout.strip()


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    yield server
    server.stop()
    server.remove()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    server = Redis(tmp_path_factory.mktemp("redis"))
    yield server
    server.kill()


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[Redis]:
    """One that a test may kill."""
    server = Redis(tmp_path)
    yield server
    server.kill()


@pytest.fixture
def namespace() -> str:
    return f"test-{uuid.uuid4().hex}"


@contextlib.contextmanager
def serving(command: list[str], port: int, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A web server while it runs; stopped as an operator would."""
    python_path = os.pathsep.join([str(HERE), str(HERE.parent / "python"), str(ROOT / "examples" / "python")])
    process = subprocess.Popen(
        [sys.executable, *command], env={**os.environ, "PYTHONPATH": python_path, **environment}, cwd=HERE
    )
    try:
        wait_for_port(port, process)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
