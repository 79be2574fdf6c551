"""Several processes of real servers on one Redis, under load: the total is exact."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
import redis
from conftest import Redis, free_port, serving

LIMIT = 300


def load(port: int) -> tuple[int, int]:
    """How many requests passed, and of how many: at least twice as many as may, however slow the machine is."""
    passed = total = 0
    command = ["wrk", "-t1", "-c8", "-d2s", f"http://127.0.0.1:{port}/"]
    for _ in range(30):
        text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
        asked = int(re.search(r"(\d+) requests in", text).group(1))  # type: ignore[union-attr]
        denied = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
        passed, total = passed + asked - (int(denied.group(1)) if denied else 0), total + asked
        if total >= 2 * LIMIT:
            break
    return passed, total


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_uvicorn_with_two_workers(redis_server: Redis, namespace: str, tmp_path: Path, loop: str) -> None:
    port = free_port()
    command = ["-m", "uvicorn", "served:asgi", "--port", str(port), "--workers", "2", "--loop", loop, "--log-level", "warning"]
    environment = {"STORE": redis_server.url, "NAMESPACE": namespace, "SERVED": str(tmp_path / "served"), "LIMIT": str(LIMIT)}
    with serving(command, port, **environment):
        passed, total = load(port)
        served = (tmp_path / "served").stat().st_size
        assert served == LIMIT, (served, passed, total)
        with pytest.raises(HTTPError) as denied:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10)
        assert denied.value.code == 429 and denied.value.headers["retry-after"]


def test_gunicorn_with_two_workers_and_flask(redis_server: Redis, namespace: str, tmp_path: Path) -> None:
    """Preloaded: the limiter is made before the workers are forked."""
    port = free_port()
    command = ["-m", "gunicorn", "served:wsgi", "--bind", f"127.0.0.1:{port}", "--workers", "2", "--threads", "2"]
    command += ["--preload", "--log-level", "warning"]
    environment = {"STORE": redis_server.url, "NAMESPACE": namespace, "SERVED": str(tmp_path / "served"), "LIMIT": str(LIMIT)}
    with serving(command, port, CONNECT_FIRST="1", **environment):
        passed, total = load(port)
        served = (tmp_path / "served").stat().st_size
        assert served == LIMIT, (served, passed, total)


@pytest.mark.parametrize("server", ["uvicorn", "gunicorn"])
def test_a_redis_that_is_killed_under_load_fails_no_request(
    own_redis: Redis, namespace: str, tmp_path: Path, server: str
) -> None:
    port = free_port()
    command = {
        "uvicorn": ["-m", "uvicorn", "served:asgi", "--port", str(port), "--workers", "2", "--log-level", "warning"],
        "gunicorn": ["-m", "gunicorn", "served:wsgi", "--bind", f"127.0.0.1:{port}", "--workers", "2", "--threads", "4"],
    }[server]
    environment = {"STORE": own_redis.url, "NAMESPACE": namespace, "SERVED": str(tmp_path / "served"), "LIMIT": "1000000"}
    statuses: Counter[Any] = Counter()
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as answer:
                    statuses[answer.status] += 1
            except HTTPError as error:
                statuses[error.code] += 1
            except OSError as error:
                statuses[repr(error)] += 1

    def more(count: int) -> None:
        """Waits for so many more answers."""
        wanted, end = statuses.total() + count, time.monotonic() + 120
        while statuses.total() < wanted:
            assert time.monotonic() < end, statuses
            time.sleep(0.02)

    with serving(command, port, **environment):
        callers = [threading.Thread(target=ask) for _ in range(4)]
        for caller in callers:
            caller.start()
        try:
            more(100)
            own_redis.kill()
            more(300)
            own_redis.start()
            end = time.monotonic() + 60
            with redis.Redis(port=own_redis.port) as client:
                # It was started empty: the workers are back when they have counted something there.
                while not client.dbsize():
                    assert time.monotonic() < end, "they do not go back to the store"
                    more(10)
        finally:
            over.set()
            for caller in callers:
                caller.join()
    assert set(statuses) == {200}, statuses


def test_websockets_over_a_real_server(redis_server: Redis, namespace: str, tmp_path: Path) -> None:
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect

    port = free_port()
    command = ["-m", "uvicorn", "served:asgi", "--port", str(port), "--log-level", "warning"]
    environment = {"STORE": redis_server.url, "NAMESPACE": namespace, "SERVED": str(tmp_path / "served"), "LIMIT": "2"}
    with serving(command, port, **environment):
        for _ in range(2):
            with connect(f"ws://127.0.0.1:{port}/ws") as socket:
                assert socket.recv() == "hello"
        with pytest.raises(InvalidStatus) as denied, connect(f"ws://127.0.0.1:{port}/ws"):
            pass
        assert denied.value.response.status_code == 429
        assert denied.value.response.headers["retry-after"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs Unix sockets")
def test_a_unix_socket_has_no_address_and_says_so(tmp_path: Path) -> None:
    import http.client
    import socket

    path = tmp_path / "socket"
    port = free_port()
    # A second server on a port tells when both are up.
    command = ["-c", f"""
import asyncio, uvicorn
from tollkeeper.asgi import RateLimitMiddleware
async def app(scope, receive, send):
    await send({{"type": "http.response.start", "status": 200, "headers": []}})
    await send({{"type": "http.response.body", "body": b""}})
limited = RateLimitMiddleware(app, limit="1/min")
async def main():
    servers = [uvicorn.Server(uvicorn.Config(limited, uds={str(path)!r}, log_level="critical", lifespan="off")),
               uvicorn.Server(uvicorn.Config(limited, port={port}, log_level="critical", lifespan="off"))]
    await asyncio.gather(*(server.serve() for server in servers))
asyncio.run(main())
"""]
    with serving(command, port):
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(path))
        connection.request("GET", "/")
        assert connection.getresponse().status == 500, "not limited would be worse"
