"""Tasks that wait for an answer of a server.

asyncio's own future started them in the loop's next turn: for a lone caller, a system call and a turn of the loop more. The
object that stands in for it has to behave as that future does.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import signal
import subprocess
import sys
import weakref
from typing import Any

import pytest
from conftest import Redis, free_port

from tollkeeper import Limiter, StoreError

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("variable")


def limiter_on(server: Redis, namespace: str, limit: str = "100/h", timeout: float = 5) -> Limiter:
    rules = [{"name": "per-user", "key": "{user}", "limit": limit}]
    return Limiter.from_rules(rules, store=server.url, namespace=namespace, timeout=timeout)


@pytest.fixture
def stopped(own_redis: Redis) -> Any:
    """A server that does not answer until it is continued."""
    assert own_redis.process is not None
    yield own_redis.process
    own_redis.process.send_signal(signal.SIGCONT)


def test_a_task_continues_in_the_turn_in_which_its_answer_arrives(redis_server: Redis, namespace: str) -> None:
    class Counting(asyncio.SelectorEventLoop):
        later = 0

        def call_soon(self, *args: Any, **options: Any) -> Any:
            self.later += 1
            return super().call_soon(*args, **options)

    limiter, loop = limiter_on(redis_server, namespace), Counting()

    async def main() -> int:
        await limiter.check({"user": "a"})
        before = loop.later
        for _ in range(10):
            await limiter.check({"user": "a"})
        return loop.later - before

    try:
        assert loop.run_until_complete(main()) == 0
    finally:
        loop.close()


def test_a_task_keeps_its_context_and_is_the_current_one(redis_server: Redis, namespace: str) -> None:
    limiter = limiter_on(redis_server, namespace)

    async def ask(value: str) -> None:
        VARIABLE.set(value)
        task = asyncio.current_task()
        for _ in range(3):
            await limiter.check({"user": value})
            assert VARIABLE.get() == value and asyncio.current_task() is task

    async def main() -> None:
        await asyncio.gather(*(ask(str(number)) for number in range(40)))

    asyncio.run(main())


def test_a_cancelled_task_hears_why(own_redis: Redis, stopped: Any, namespace: str) -> None:
    limiter = limiter_on(own_redis, namespace, timeout=30)

    async def ask() -> Any:
        return await limiter.check({"user": "a"})

    async def main() -> None:
        await limiter.check({"user": "a"})
        stopped.send_signal(signal.SIGSTOP)
        task, other = asyncio.ensure_future(ask()), asyncio.ensure_future(ask())
        await asyncio.sleep(0.05)
        assert not task.done() and "wait_for" in repr(task)
        task.cancel("no longer needed")
        with pytest.raises(asyncio.CancelledError, match="no longer needed"):
            await task
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(ask(), 0.05)
        shielded = asyncio.shield(other)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(shielded, 0.05)
        stopped.send_signal(signal.SIGCONT)
        assert (await other).allowed
        assert (await ask()).allowed

    asyncio.run(main())


def test_a_task_that_is_cancelled_in_the_turn_of_its_answer(redis_server: Redis, namespace: str) -> None:
    """One task cancels the other when its own answer arrives; both answers came with one wake-up, or the other comes later."""
    limiter = limiter_on(redis_server, namespace, limit="100000/h")

    async def main() -> None:
        for _ in range(50):
            tasks: list[asyncio.Task[str]] = []

            async def ask(number: int, tasks: list[asyncio.Task[str]] = tasks) -> str:
                await limiter.check({"user": str(number)})
                tasks[1 - number].cancel()
                return "answered"

            tasks.extend(asyncio.ensure_future(ask(number)) for number in range(2))
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert outcomes.count("answered") >= 1
            assert all(outcome == "answered" or isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)

    asyncio.run(main())


def test_an_answer_is_there_for_whoever_awaits_it_later(redis_server: Redis, namespace: str) -> None:
    limiter = limiter_on(redis_server, namespace)

    async def main() -> None:
        asked = limiter.check({"user": "a"})
        await asyncio.sleep(0.2)
        assert (await asked).allowed
        given_up = limiter.check({"user": "a"})
        given_up.close()
        with pytest.raises(RuntimeError, match="closed"):
            await given_up
        assert (await limiter.check({"user": "a"})).allowed
        assert (await limiter.inspect("per-user", "a"))[0]["remaining"] == 97, "who gave up was charged too"

    asyncio.run(main())


def test_an_error_reaches_the_caller() -> None:
    rules = [{"name": "per-user", "key": "{user}", "limit": "1/h"}]
    limiter = Limiter.from_rules(rules, store=f"redis://127.0.0.1:{free_port()}", timeout=5)

    async def main() -> None:
        connecting = limiter.connect()
        for _ in range(2):
            with pytest.raises(StoreError):
                await connecting

    asyncio.run(main())


@pytest.mark.parametrize("fatal", [SystemExit, KeyboardInterrupt])
def test_a_loop_that_a_task_ends_answers_the_others_when_it_runs_again(
    redis_server: Redis, namespace: str, fatal: type[BaseException]
) -> None:
    limiter, loop = limiter_on(redis_server, namespace), asyncio.new_event_loop()

    async def ask(number: int) -> bool:
        verdict = await limiter.check({"user": str(number)})
        # In the midst of those that are answered together.
        if number == 10:
            raise fatal()
        return verdict.allowed

    async def wait() -> None:
        await asyncio.wait(tasks)

    try:
        tasks = [loop.create_task(ask(number)) for number in range(30)]
        waiting = loop.create_task(wait())
        with pytest.raises(fatal):
            loop.run_until_complete(waiting)
        loop.run_until_complete(waiting)
        with pytest.raises(fatal):
            tasks.pop(10).result()
        assert [task.result() for task in tasks] == [True] * 29
    finally:
        loop.close()


NESTED = """
import asyncio
import sys

import nest_asyncio

from tollkeeper import Limiter

rules = [{"name": "per-user", "key": "{user}", "limit": "100/h"}]
limiter = Limiter.from_rules(rules, store=sys.argv[1], namespace=sys.argv[2])
loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
nest_asyncio.apply(loop)

async def inner(user):
    return (await limiter.check({"user": user})).allowed

async def outer(user):
    await limiter.check({"user": user})
    return asyncio.run(inner(user))

async def main():
    return await asyncio.gather(*(outer(str(number)) for number in range(10)))

assert loop.run_until_complete(main()) == [True] * 10
"""


def test_a_loop_that_runs_inside_of_itself_is_answered_there(redis_server: Redis, namespace: str) -> None:
    """With nest_asyncio, as in notebooks, a task can run its own loop. A loop that was about to continue that task could not be
    called for the next answers: the task waited for them forever."""
    command = [sys.executable, "-c", NESTED, redis_server.url, namespace]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr[:2000]


def test_a_task_may_make_its_loop_a_nested_one(redis_server: Redis, namespace: str) -> None:
    """As in a cell of a notebook that asks first, and applies nest_asyncio then: the loop was just continuing that task, and could not
    be called for the answers to what it asked next."""
    late = NESTED.replace("nest_asyncio.apply(loop)\n", "").replace("    return asyncio.run", "    nest_asyncio.apply()\n    return asyncio.run")
    assert late.count("nest_asyncio.apply") == 1
    command = [sys.executable, "-c", late, redis_server.url, namespace]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr[:2000]


def test_who_got_an_error_is_collected() -> None:
    """An error's traceback leads to whoever waited, who may still have what was awaited. The collector did not see the error
    there, and kept all of them forever."""
    rules = [{"name": "per-user", "key": "{user}", "limit": "1/h"}]
    url, callers = f"redis://127.0.0.1:{free_port()}", list[weakref.ref[Any]]()

    class Caller:
        async def ask(self) -> None:
            callers.append(weakref.ref(self))
            connecting = Limiter.from_rules(rules, store=url).connect()
            await connecting

    async def main() -> None:
        for _ in range(5):
            with pytest.raises(StoreError):
                await Caller().ask()

    asyncio.run(main())
    gc.collect()
    assert [caller() for caller in callers] == [None] * 5


def test_loops_that_are_closed_before_their_answers_arrive(own_redis: Redis, stopped: Any, namespace: str) -> None:
    """Each of them left itself and a descriptor behind: an answer that nobody took kept the loop that it was for."""
    limiter, loops = limiter_on(own_redis, namespace, timeout=30), list[weakref.ref[Any]]()

    async def ask() -> None:
        await limiter.check({"user": "a"})

    async def give_up() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        asking = asyncio.ensure_future(ask())
        await asyncio.sleep(0.01)
        asking.cancel()

    asyncio.run(ask())
    stopped.send_signal(signal.SIGSTOP)
    for _ in range(5):
        asyncio.run(give_up())
    stopped.send_signal(signal.SIGCONT)
    limiter.check_sync({"user": "a"})
    # A new loop takes the place of those that are closed.
    asyncio.run(ask())
    gc.collect()
    assert [loop() for loop in loops] == [None] * 5


def test_an_answer_can_be_used_as_a_future(redis_server: Redis, namespace: str) -> None:
    """asyncio takes it for a future and may ask for `exception()`, which it did not have. A comparison of callbacks that failed
    lost all of them."""
    limiter = limiter_on(redis_server, namespace)

    def future() -> Any:
        later = limiter.check({"user": "a"}).send(None)
        later._asyncio_future_blocking = False
        assert asyncio.isfuture(later)
        return later

    class Incomparable:
        def __eq__(self, other: object) -> bool:
            raise ValueError("not with me")

        def __call__(self, _future: Any) -> None:
            pass

    async def main() -> None:
        await limiter.check({"user": "a"})
        assert (await asyncio.wait_for(asyncio.gather(future()), 10))[0].allowed
        assert (await asyncio.wait_for(asyncio.shield(future()), 10)).allowed
        answered = future()
        await asyncio.wait({answered}, timeout=10)
        assert answered.exception() is None
        given_up = future()
        with pytest.raises(RuntimeError):
            given_up.exception()
        given_up.cancel("no longer needed")
        with pytest.raises(asyncio.CancelledError, match="no longer needed"):
            given_up.exception()
        outcomes = await asyncio.gather(given_up, return_exceptions=True)
        assert isinstance(outcomes[0], asyncio.CancelledError)
        later, called = future(), asyncio.Event()

        def call(_future: Any) -> None:
            called.set()

        def removed(_future: Any) -> None:
            raise AssertionError("it was removed")

        later.add_done_callback(removed)
        assert later.remove_done_callback(removed) == 1 and later.remove_done_callback(removed) == 0
        later.add_done_callback(Incomparable())
        later.add_done_callback(call)
        with pytest.raises(ValueError, match="not with me"):
            later.remove_done_callback(removed)
        await asyncio.wait_for(called.wait(), 10)

    asyncio.run(main())
