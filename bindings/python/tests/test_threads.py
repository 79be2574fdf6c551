"""Threads that share a limiter. Under a free-threaded interpreter they run at the same time."""

from __future__ import annotations

import asyncio
import sys
import sysconfig
import threading
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Redis

from tollkeeper import Limiter, keyed
from tollkeeper.asgi import RateLimitMiddleware

THREADS = 8


def together(work: Callable[[int], Any]) -> list[Any]:
    """What each thread returns; all of them start at the same time."""
    results: list[Any] = [None] * THREADS
    start = threading.Barrier(THREADS)

    def run(number: int) -> None:
        start.wait()
        try:
            results[number] = work(number)
        except BaseException as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="the interpreter has the global lock")
def test_the_module_does_not_bring_the_lock_back() -> None:
    is_enabled: Callable[[], bool] = getattr(sys, "_is_gil_enabled")
    assert not is_enabled()


def test_a_key_of_all_threads_has_an_exact_total() -> None:
    limiter = keyed("1000/h")

    def work(number: int) -> int:
        # Keys of its own between, and answers that outlive the call, so that memory of answers goes from thread to thread.
        decisions = []
        for turn in range(1000):
            decisions.append(limiter.check("hot"))
            assert limiter.check(f"{number}-{turn}", 3).remaining == 997
        return sum(decision.allowed for decision in decisions)

    assert sum(together(work)) == 1000


def test_rules_change_while_threads_ask() -> None:
    rule = {"name": "per-user", "key": "{user}", "limit": "500/h"}
    limiter = Limiter.from_rules([rule])

    def work(number: int) -> int:
        passed = 0
        for turn in range(500):
            if number == 0 and turn % 10 == 0:
                limiter.replace_rules([{**rule, "description": f"turn {turn}"}])
            verdict = limiter.check_sync({"user": "hot"})
            assert [row.rule for row in verdict.rules] == ["per-user"]
            passed += verdict.allowed
        return passed

    assert sum(together(work)) == 500


def test_each_thread_may_have_an_event_loop(redis_server: Redis, namespace: str) -> None:
    rule = {"name": "per-user", "key": "{user}", "limit": "300/h"}
    limiter = Limiter.from_rules([rule], store=redis_server.url, namespace=namespace, timeout=10)

    async def ask() -> int:
        passed = 0
        for _ in range(5):
            verdicts = await asyncio.gather(*(limiter.check({"user": "hot"}) for _ in range(20)))
            passed += sum(verdict.allowed for verdict in verdicts)
        return passed

    def work(number: int) -> int:
        if number % 2:
            return asyncio.run(ask())
        return sum(limiter.check_sync({"user": "hot"}).allowed for _ in range(50))

    assert sum(together(work)) == 300


def test_slots_are_held_by_one_thread_at_a_time() -> None:
    limiter = Limiter.from_rules([{"name": "exports", "key": "{user}", "limit": 1, "algorithm": "concurrency"}])
    inside: list[int] = []

    def work(number: int) -> int:
        held = 0
        for _ in range(300):
            with limiter.acquire_sync({"user": "hot"}) as permit:
                if permit.allowed:
                    inside.append(number)
                    assert inside == [number]
                    held += 1
                    inside.remove(number)
        return held

    assert sum(together(work)) > 0


def test_an_application_in_many_threads() -> None:
    async def home(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"home"})

    app = RateLimitMiddleware(home, limit="400/h")

    async def asked() -> int:
        statuses: list[int] = []

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                assert any(name == b"ratelimit" for name, _ in message["headers"])

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        for _ in range(100):
            scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "client": ("192.0.2.7", 5000)}
            await app(scope, receive, send)
        return statuses.count(200)

    assert sum(together(lambda _number: asyncio.run(asked()))) == 400
