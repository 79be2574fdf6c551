"""What a real Redis adds: one total for all, failures, event loops, threads and forks."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import pytest
from conftest import Redis

from tollkeeper import Limiter, StoreError

RULE = {"name": "per-user", "key": "{user}", "limit": "100/h"}


def limiter_on(server: Redis, namespace: str, **rule: object) -> Limiter:
    return Limiter.from_rules([{**RULE, **rule}], store=server.url, namespace=namespace, timeout=5)


def test_many_callers_get_an_exact_total(redis_server: Redis, namespace: str) -> None:
    limiter = limiter_on(redis_server, namespace)

    async def main() -> int:
        verdicts = await asyncio.gather(*(limiter.check({"user": "a"}) for _ in range(500)))
        return sum(verdict.allowed for verdict in verdicts)

    assert asyncio.run(main()) == 100


def test_two_limiters_share_one_total(redis_server: Redis, namespace: str) -> None:
    one, other = limiter_on(redis_server, namespace), limiter_on(redis_server, namespace)
    passed = [limiter.check_sync({"user": "a"}).allowed for _ in range(60) for limiter in (one, other)]
    assert sum(passed) == 100
    assert one.check_sync({"user": "a"}).source in ("store", "deny_cache")
    assert other.check_sync({"user": "a"}).source in ("store", "deny_cache")


@pytest.mark.parametrize("policy", ["asyncio", "uvloop"])
def test_loops_that_come_and_go(redis_server: Redis, namespace: str, policy: str) -> None:
    limiter = limiter_on(redis_server, namespace, limit="10000/h")

    async def ask() -> bool:
        return all(v.allowed for v in await asyncio.gather(*(limiter.check({"user": "a"}) for _ in range(20))))

    def run() -> bool:
        if policy == "uvloop":
            uvloop = pytest.importorskip("uvloop")
            return bool(uvloop.run(ask()))
        return asyncio.run(ask())

    descriptors = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    assert all(run() for _ in range(5))
    answers: list[bool] = []
    threads = [threading.Thread(target=lambda: answers.append(run())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [True] * 4
    gc.collect()
    if sys.platform == "linux":
        assert len(os.listdir("/proc/self/fd")) < descriptors + 8, "loops that are gone leave descriptors behind"


def test_a_cancelled_caller_holds_nothing(own_redis: Redis, namespace: str) -> None:
    limiter = limiter_on(own_redis, namespace, limit=1, algorithm="concurrency")

    async def main() -> None:
        await limiter.check({"user": "other"})
        assert own_redis.process is not None
        own_redis.process.send_signal(signal.SIGSTOP)
        task = asyncio.ensure_future(limiter.acquire({"user": "a"}))
        await asyncio.sleep(0.05)
        task.cancel()
        own_redis.process.send_signal(signal.SIGCONT)
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(200):
            async with limiter.acquire({"user": "a"}) as permit:
                if permit.allowed:
                    return
            await asyncio.sleep(0.02)
        raise AssertionError("the slot of a caller who was cancelled is still held")

    asyncio.run(main())


def test_threads_wait_without_the_interpreters_lock(redis_server: Redis, namespace: str) -> None:
    limiter, passed = limiter_on(redis_server, namespace), []

    def work() -> None:
        passed.append(sum(limiter.check_sync({"user": "a"}).allowed for _ in range(50)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(passed) == 100


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_children_connect_by_themselves(redis_server: Redis, namespace: str) -> None:
    limiter = limiter_on(redis_server, namespace)
    assert limiter.check_sync({"user": "a"}).allowed
    children = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for _ in range(3):
            child = os.fork()
            if child == 0:
                # Whatever happens here must not run the tests of the parent.
                passed = 255
                try:
                    passed = sum(limiter.check_sync({"user": "a"}).allowed for _ in range(40))
                finally:
                    os._exit(passed)
            children.append(child)
    passed = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    rest = sum(limiter.check_sync({"user": "a"}).allowed for _ in range(40))
    assert sum(passed) + rest + 1 == 100, (passed, rest)


@pytest.mark.parametrize(("policy", "source", "allowed"), [("open", "policy", True), ("closed", "policy", False), ("local", "local", True)])
def test_a_store_that_is_killed_and_comes_back(
    own_redis: Redis, namespace: str, policy: str, source: str, allowed: bool
) -> None:
    limiter = Limiter.from_rules(
        [{**RULE, "on_store_failure": policy}], store=own_redis.url, namespace=namespace, timeout=0.5
    )

    async def main() -> None:
        assert (await limiter.check({"user": "a"})).source == "store"
        own_redis.kill()
        verdict = await limiter.check({"user": "a"})
        assert (verdict.source, verdict.allowed, verdict.unavailable) == (source, allowed, not allowed)
        own_redis.start()
        for _ in range(300):
            if (await limiter.check({"user": "a"})).source == "store":
                return
            await asyncio.sleep(0.1)
        raise AssertionError("it does not go back to the store")

    asyncio.run(main())


def test_leases_are_given_back_when_the_interpreter_ends(redis_server: Redis, namespace: str) -> None:
    code = f"""
import asyncio
from tollkeeper import Limiter
limiter = Limiter.from_rules([{{"name": "leased", "key": "{{user}}", "limit": "1000/h", "lease": 100}}],
                             store={redis_server.url!r}, namespace={namespace!r}, timeout=5)
async def main():
    sources = [(await limiter.check({{"user": "a"}})).source for _ in range(50)]
    assert "lease" in sources, sources
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    limiter = Limiter.from_rules(
        [{"name": "leased", "key": "{user}", "limit": "1000/h"}], store=redis_server.url, namespace=namespace, timeout=5
    )
    assert limiter.inspect_sync("leased", "a")[0]["remaining"] >= 950


def test_the_interpreter_ends_quietly_whatever_is_under_way(own_redis: Redis, namespace: str) -> None:
    code = f"""
import asyncio, os, signal
from tollkeeper import Limiter
limiter = Limiter.from_rules([{RULE!r}], store={own_redis.url!r}, namespace={namespace!r}, timeout=5)
async def main():
    await limiter.check({{"user": "a"}})
    os.kill({own_redis.process.pid if own_redis.process else 0}, signal.SIGSTOP)
    asyncio.ensure_future(limiter.check({{"user": "a"}}))
    await asyncio.sleep(0)
asyncio.run(main())
"""
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - began < 30


def test_without_a_server_the_failure_policy_answers() -> None:
    """A process that starts while Redis is unreachable raised an exception with every request."""
    for policy, allowed in (("open", True), ("closed", False), ("local", True)):
        limiter = Limiter.from_rules([{**RULE, "on_store_failure": policy}], store="redis://127.0.0.1:1")
        verdict = limiter.check_sync({"user": "a"})
        assert (verdict.allowed, verdict.source) == (allowed, "local" if policy == "local" else "policy")
        with pytest.raises(StoreError, match="cannot connect"):
            limiter.connect_sync()
