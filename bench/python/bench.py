"""The Python package beside its peers, in one run on one machine: CPU time a call.

    ./run bench_python

CPU time is that of this process, of all its threads; on Redis also that of the server. Wall time is shown where callers wait.
Figures are the best of several rounds; on Redis the medians of rounds in which all take turns, with their quartiles.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from statistics import median, quantiles
from typing import Any

KEYS = [f"client-{index}" for index in range(1000)]


def per_call(run: Callable[[], None], calls: int, rounds: int = 5) -> float:
    """The best of several rounds, in seconds of CPU a call."""
    best = float("inf")
    for _ in range(rounds):
        gc.collect()
        began = time.process_time()
        run()
        best = min(best, (time.process_time() - began) / calls)
    return best


def table(title: str, header: list[str], rows: list[list[str]]) -> None:
    print(f"\n## {title}\n")
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    sys.stdout.flush()


# --- one key, in memory -----------------------------------------------------------------------------------------------


def keyed() -> None:
    import limits
    import throttled
    from pyrate_limiter import Duration, InMemoryBucket, Limiter, Rate

    import tollkeeper

    def loop(check: Callable[[str], Any], calls: int) -> float:
        def run() -> None:
            for index in range(calls):
                check(KEYS[index % 1000])

        return per_call(run, calls)

    ours = tollkeeper.keyed("1,000,000/s")
    results: list[tuple[str, float]] = [("tollkeeper `keyed(...).check(key)`", loop(ours.check, 200_000))]
    rate = limits.parse("1000000/second")
    for strategy in ("FixedWindowRateLimiter", "MovingWindowRateLimiter", "SlidingWindowCounterRateLimiter"):
        limiter = getattr(limits.strategies, strategy)(limits.storage.MemoryStorage())
        results.append((f"limits `{strategy}`", loop(lambda key, limiter=limiter: limiter.hit(rate, key), 20_000)))
    with contextlib.suppress(Exception):
        pyrate = Limiter(InMemoryBucket([Rate(1_000_000, Duration.SECOND)]))
        results.append(("pyrate-limiter `InMemoryBucket`", loop(lambda key: pyrate.try_acquire(key), 20_000)))
    for algorithm in ("fixed_window", "token_bucket", "gcra"):
        quota = throttled.rate_limiter.per_sec(1_000_000, burst=1_000_000)
        throttle = throttled.Throttled(using=algorithm, quota=quota, store=throttled.store.MemoryStore(options={"MAX_SIZE": 4096}))
        results.append((f"throttled-py `{algorithm}`", loop(lambda key, throttle=throttle: throttle.limit(key), 20_000)))
    base = results[0][1]
    rows = [[name, f"{cost * 1e9:,.0f} ns", f"{cost / base:.1f}x"] for name, cost in results]
    table("One key, in memory: CPU a call", ["library", "CPU a call", "beside tollkeeper"], rows)


# --- ASGI -------------------------------------------------------------------------------------------------------------


def asgi() -> None:
    from slowapi import Limiter
    from slowapi.middleware import SlowAPIASGIMiddleware, SlowAPIMiddleware
    from slowapi.util import get_remote_address
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    from tollkeeper.asgi import RateLimitMiddleware

    async def home(_request: Request) -> PlainTextResponse:
        return PlainTextResponse("ok")

    def bare() -> Any:
        return Starlette(routes=[Route("/", home)])

    def slow(middleware: Any) -> Any:
        app = bare()
        app.state.limiter = Limiter(key_func=get_remote_address, default_limits=["1000000/second"], headers_enabled=True)
        app.add_middleware(middleware)
        return app

    def ours() -> Any:
        app = bare()
        app.add_middleware(RateLimitMiddleware, limit="1,000,000/s")
        return app

    headers = [(b"host", b"example.org"), (b"user-agent", b"bench"), (b"accept", b"*/*"), (b"accept-encoding", b"gzip")]

    async def drive(app: Any, calls: int) -> float:
        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                assert message["status"] == 200

        def scope(index: int) -> dict[str, Any]:
            return {
                "type": "http",
                "asgi": {"version": "3.0"},
                "http_version": "1.1",
                "method": "GET",
                "scheme": "http",
                "path": "/",
                "raw_path": b"/",
                "root_path": "",
                "query_string": b"",
                "headers": headers,
                "client": (f"10.0.{index % 4}.{index % 250}", 5000),
                "server": ("127.0.0.1", 80),
                "state": {},
            }

        best = float("inf")
        for _ in range(5):
            gc.collect()
            began = time.process_time()
            for index in range(calls):
                await app(scope(index), receive, send)
            best = min(best, (time.process_time() - began) / calls)
        return best

    base = asyncio.run(drive(bare(), 5_000))
    results = [
        ("tollkeeper `RateLimitMiddleware`", asyncio.run(drive(ours(), 5_000)) - base),
        ("slowapi `SlowAPIASGIMiddleware`", asyncio.run(drive(slow(SlowAPIASGIMiddleware), 2_000)) - base),
        ("slowapi `SlowAPIMiddleware`", asyncio.run(drive(slow(SlowAPIMiddleware), 2_000)) - base),
    ]
    rows = [["(Starlette alone)", f"{base * 1e6:.1f} µs", ""]]
    rows += [[name, f"+{cost * 1e6:.1f} µs", f"{cost / results[0][1]:.1f}x"] for name, cost in results]
    table("ASGI, in memory, with limit headers: added CPU a request", ["middleware", "CPU", "beside tollkeeper"], rows)


# --- Redis ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def redis_server() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
        try:
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.05)
            yield port
        finally:
            process.terminate()
            process.wait()


def shared() -> None:
    import redis as client

    with redis_server() as port:
        plain = client.Redis(port=port)

        def server_cpu() -> float:
            info: Any = plain.info("cpu")
            return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])

        async def measure(check: Callable[[str], Awaitable[Any]], callers: int, calls: int) -> tuple[float, float, float]:
            async def caller(number: int, calls: int) -> None:
                for index in range(calls):
                    await check(f"{number}-{index % 100}")

            await asyncio.gather(*(caller(number, 20) for number in range(callers)))
            cpu, server, wall = time.process_time(), server_cpu(), time.perf_counter()
            await asyncio.gather(*(caller(number, calls // callers) for number in range(callers)))
            total = calls // callers * callers
            used = (time.process_time() - cpu) / total
            served = (server_cpu() - server) / total
            return used, served, (time.perf_counter() - wall) / total

        def ours() -> Callable[[str], Awaitable[Any]]:
            from tollkeeper import Limiter

            limiter = Limiter.from_rules(
                [{"name": "bench", "key": "{client}", "limit": "1,000,000/s"}], store=f"redis://127.0.0.1:{port}", timeout=1
            )
            return lambda key: limiter.check({"client": key})

        def theirs(implementation: str) -> Callable[[str], Awaitable[Any]]:
            import limits
            from limits.aio.storage import RedisStorage
            from limits.aio.strategies import FixedWindowRateLimiter

            options: dict[str, Any] = {"max_connections": 1000}
            storage = RedisStorage(f"async+redis://127.0.0.1:{port}", implementation=implementation, **options)  # type: ignore[arg-type]
            limiter, rate = FixedWindowRateLimiter(storage), limits.parse("1000000/second")
            return lambda key: limiter.hit(rate, key)

        async def turns() -> list[list[str]]:
            """All take turns in one process and one event loop: how long a thread takes to wake another differs between starts
            of a process, and for seconds within one, by several times."""
            checks = {"tollkeeper": ours()}
            for implementation in ("coredis", "redispy"):
                checks[f"limits.aio ({implementation})"] = theirs(implementation)
            rows = []
            for callers, calls, rounds in ((1, 600, 25), (50, 5_000, 9), (200, 6_000, 9)):
                found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in checks}
                for _ in range(rounds):
                    for name, check in checks.items():
                        found[name].append(await measure(check, callers, calls))
                base = median(app + server for app, server, _ in found["tollkeeper"])
                for name, measured in found.items():
                    app, server, wall = (median(figures) for figures in zip(*measured))
                    low, cpu, high = quantiles((app + server for app, server, _ in measured), n=4)
                    together = f"{micros(cpu)} ({low * 1e6:.0f} to {high * 1e6:.0f})"
                    rows.append([str(callers), name, micros(app), micros(server), together, f"{cpu / base:.1f}x", micros(wall)])
            return rows

        header = ["callers", "library", "CPU of the app", "CPU of Redis", "together, a call", "beside tollkeeper", "wall a call"]
        table("Redis, asyncio", header, asyncio.run(turns()))


def micros(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs"


if __name__ == "__main__":
    parts = {"keyed": keyed, "asgi": asgi, "redis": shared}
    for name in sys.argv[1:] or parts:
        parts[name]()
