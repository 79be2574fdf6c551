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
from pathlib import Path
from typing import Any

import pytest
from conftest import Redis, cluster

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


def test_many_answers_arrive_with_one_wake_up(redis_server: Redis, namespace: str) -> None:
    class Counting(asyncio.SelectorEventLoop):
        woken = 0

        def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:
            def counted() -> None:
                self.woken += 1
                callback(*args)

            super().add_reader(fd, counted)

    limiter, loop = limiter_on(redis_server, namespace), Counting()

    async def main() -> int:
        await limiter.check({"user": "first"})
        verdicts = await asyncio.gather(*(limiter.check({"user": str(user)}) for user in range(500)))
        return sum(verdict.source == "store" for verdict in verdicts)

    try:
        assert loop.run_until_complete(main()) == 500
    finally:
        loop.close()
    assert 0 < loop.woken < 100, f"woken {loop.woken} times for 501 answers"


def test_callers_that_ask_in_one_turn_are_all_answered(redis_server: Redis, namespace: str) -> None:
    """Their questions are sent together at the end of the turn; one that is cancelled before that does not keep the others waiting."""
    limiter = limiter_on(redis_server, namespace)

    async def ask() -> bool:
        return (await limiter.check({"user": "a"})).allowed

    async def main() -> list[int]:
        found = []
        for callers in (1, 2, 3, 15, 16, 17, 18, 40):
            await limiter.reset("per-user", "a")
            tasks = [asyncio.create_task(ask()) for _ in range(callers)]
            await asyncio.sleep(0)
            tasks.append(asyncio.create_task(ask()))
            given_up = asyncio.create_task(ask())
            await asyncio.sleep(0)
            given_up.cancel()
            found.append(sum(await asyncio.wait_for(asyncio.gather(*tasks), 30)) - callers)
        return found

    assert asyncio.run(main()) == [1] * 8


def test_a_cluster(tmp_path: Path) -> None:
    """Two rules whose buckets are in different slots: all or nothing, and an exact total."""
    with cluster(tmp_path) as url:
        rules = [{"name": "per-user", "key": "{user}", "limit": "20/h"}, {"name": "all", "key": "global", "limit": "50/h"}]
        limiter = Limiter.from_rules(rules, store=url, timeout=5)

        async def main() -> list[int]:
            users = [str(number % 4) for number in range(160)]
            verdicts = await asyncio.gather(*(limiter.check({"user": user}) for user in users))
            assert {verdict.source for verdict in verdicts} <= {"store", "deny_cache"}
            return [sum(v.allowed for v, user in zip(verdicts, users) if user == one) for one in "0123"]

        passed = asyncio.run(main())
        # Of requests at the same moment, some may be denied by what others took and gave back. What is left is there a moment
        # later, and no more: a bucket loses what it refilled during a refund, so its last token is whole again only then. To refill one that
        # was charged would take minutes.
        ends_at = time.monotonic() + 20
        while sum(passed) < 50 and time.monotonic() < ends_at:
            user = passed.index(min(passed))
            passed[user] += limiter.check_sync({"user": str(user)}).allowed
        assert sum(passed) == 50 and max(passed) <= 20, passed
        assert not any(limiter.check_sync({"user": user}).allowed for user in "0123")
        expected, ends_at = [20 - count for count in passed], time.monotonic() + 20
        while True:
            left = [limiter.inspect_sync("per-user", user)[0]["remaining"] for user in "0123"]
            if left == expected or time.monotonic() > ends_at:
                break
        assert left == expected, "denied requests were charged"


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

    # What the limiter itself needs, such as its connection, is open from here on.
    assert run()
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


def test_a_caller_that_is_alone_uses_the_connection_that_is_there(own_redis: Redis, namespace: str) -> None:
    """Another connection would be read by another thread: two more switches between threads for each request."""
    limiter = limiter_on(own_redis, namespace)
    limiter.connect_sync()

    def connections() -> int:
        clients = subprocess.check_output(["redis-cli", "-p", str(own_redis.port), "client", "list"], text=True)
        return len(clients.splitlines())

    async def main() -> None:
        before = connections()
        for _ in range(10):
            assert (await limiter.check({"user": "a"})).source == "store"
        assert connections() == before

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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_children_of_a_process_whose_threads_ask_meanwhile(redis_server: Redis, namespace: str) -> None:
    """A lock that another thread holds at that moment stays locked in the child, which would hang with its first request."""
    code = f"""
import os, signal, threading, time, warnings
from tollkeeper import Limiter
warnings.simplefilter("ignore")
rules = [{{"name": "asked", "key": "{{user}}", "limit": "1000000/h"}}]
limiter = Limiter.from_rules(rules, store={redis_server.url!r}, namespace={namespace!r}, timeout=5)
assert limiter.check_sync({{"user": "a"}}).source == "store"
over = threading.Event()

def ask():
    while not over.is_set():
        limiter.check_sync({{"user": "a"}})

threads = [threading.Thread(target=ask) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(150):
    child = os.fork()
    if child == 0:
        # Ends a process that hangs.
        signal.alarm(30)
        # On a busy machine a first attempt to connect can take longer than a request would wait.
        while limiter.check_sync({{"user": "b"}}).source != "store":
            time.sleep(0.1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
over.set()
for thread in threads:
    thread.join()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


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
