"""One quota, any key."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tollkeeper import ConfigError, Keyed, ManualClock, Quota, RuleError, TollkeeperError, keyed


def test_the_wait_is_exact() -> None:
    clock = ManualClock()
    limiter = keyed("10/s burst 2", clock=clock)
    assert limiter.check("a").allowed and limiter.check("a").remaining == 0
    denied = limiter.check("a")
    assert not denied and denied.retry_after == pytest.approx(0.1)
    clock.advance(0.099999)
    assert not limiter.check("a").allowed
    clock.advance(0.000001)
    assert limiter.check("a").allowed


def test_keys_of_different_kinds_are_different() -> None:
    limiter = keyed("1/min")
    assert limiter.check("1").allowed and limiter.check(b"1").allowed and limiter.check(1).allowed
    assert not limiter.check("1").allowed and not limiter.check(b"1").allowed and not limiter.check(1).allowed
    assert len(limiter) == 3
    assert limiter.check("ä\u2028😀").allowed and not limiter.check("ä\u2028😀").allowed
    with pytest.raises(TypeError, match="str, bytes or int"):
        limiter.check(1.5)  # type: ignore[arg-type]


def test_calls_of_every_form_are_the_same_call() -> None:
    """Usual calls take another way into the extension than all others: both mean the same, and both name mistakes."""
    limiter = keyed("10/min")
    calls = [limiter.check("a"), limiter.check("a", 1), limiter.check("a", cost=1), limiter.check(key="a"), limiter.check(cost=1, key="a")]
    calls += [type(limiter).check(limiter, "a"), limiter.check("a", **{"cost": 1}), limiter.check(*["a", True])]
    assert [decision.remaining for decision in calls] == [9, 8, 7, 6, 5, 4, 3, 2]
    assert limiter.check("a", 0).remaining == 2 and limiter.check(b"a").remaining == 9
    check: Any = limiter.check
    for arguments, named, words in [
        ((), {}, "missing 1 required positional argument: 'key'"),
        (("a", 1, 2), {}, "takes from 1 to 2 positional arguments but 3 were given"),
        (("a",), {"costs": 1}, "unexpected keyword argument 'costs'"),
        (("a", 1), {"cost": 1}, "multiple values for argument 'cost'"),
        (("a",), {"cost": None}, "cost: None is not a whole number"),
        (("a", "1"), {}, "cost: '1' is not a whole number"),
        ((None,), {}, "a key must be a str, bytes or int, not NoneType"),
    ]:
        with pytest.raises(TypeError, match=words):
            check(*arguments, **named)
    with pytest.raises(ValueError, match="cost: 4294967296 is not a whole number"):
        check("a", cost=2**32)
    with pytest.raises(UnicodeEncodeError):
        check("\ud800")
    with pytest.raises(TypeError, match="Keyed"):
        Keyed.check("not a limiter", "a")  # type: ignore[arg-type]
    assert limiter.peek("a").remaining == 2, "mistakes are not charged"
    assert Keyed.check.__doc__ == "Decides a request; cost 0 peeks."
    assert str(inspect.signature(Keyed.check)) == "(self, /, key, cost=1)"


def test_a_cost_is_read_once() -> None:
    read = []

    class Tokens:
        def __index__(self) -> int:
            read.append(self)
            if len(read) > 1:
                raise RuntimeError("the meter is broken")
            return 2

    limiter = keyed("3/min")
    assert limiter.check("a", Tokens()).remaining == 1
    assert len(read) == 1
    with pytest.raises(TypeError, match="cost: .* is not a whole number"):
        limiter.check("a", cost=Tokens())
    assert len(read) == 2, "it failed, and was not asked again"
    assert limiter.peek("a").remaining == 1


SUBINTERPRETER = """
import sys
if sys.version_info >= (3, 13):
    import _interpreters as interpreters
    sub = interpreters.create("legacy")
else:
    import _xxsubinterpreters as interpreters
    sub = interpreters.create(isolated=False)
interpreters.run_string(sub, '''
try:
    from tollkeeper import keyed
except ImportError:
    print("refused", flush=True)
else:
    limiter = keyed("9/min")
    try:
        limiter.check(None)
    except TypeError:
        print([limiter.check("a").remaining, limiter.check(b"b").remaining, limiter.check(key="a").remaining], flush=True)
''')
"""


def test_a_subinterpreter_does_not_wait_for_itself() -> None:
    """In a subinterpreter, as mod_wsgi has them, every unusual call and every mistake waited forever for a lock that its own thread had."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1] / "python")}
    command = [sys.executable, "-W", "ignore", "-c", SUBINTERPRETER]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    # Not every Python lets every extension in.
    assert ended.stdout in ("[8, 8, 7]\n", "refused\n"), ended.stderr


def test_numbers_of_any_size_are_keys() -> None:
    """Half of all UUIDs, as a number, raised an OverflowError."""
    limiter = keyed("1/min")
    for number in (2**127, 2**128 - 1, 10**50, -(2**127) - 1):
        assert limiter.check(number).allowed and not limiter.check(number).allowed
        assert limiter.check(str(number)).allowed, "a text is another key"


def test_peek_and_reset() -> None:
    limiter = keyed(Quota.per_minute(3))
    assert [decision.remaining for decision in limiter.check_many(["a", "a", "b"])] == [2, 1, 2]
    assert limiter.peek("a").remaining == 1 and limiter.peek("a").remaining == 1
    assert limiter.reset("a") and not limiter.reset("a")
    assert limiter.check("a", 4).retry_after is None, "it can never pass"


def test_slots() -> None:
    limiter = keyed(Quota.concurrent(1))
    first = limiter.check("a")
    assert first.allowed and not limiter.check("a").allowed
    assert limiter.release("a", first) and not limiter.release("a", first)
    assert limiter.check("a").allowed


def test_quotas() -> None:
    assert str(Quota("10/s burst 20")) == "10/s burst 20 token_bucket"
    assert Quota.per_second(10, burst=20) == Quota("10/s burst 20")
    assert Quota("6,000/min algorithm fixed_window").algorithm == "fixed_window"
    assert (Quota("5/90s").count, Quota("5/90s").period, Quota("5/90s").limit) == (5, 90.0, 5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("10/fortnight", "is not a unit of time"),
        ("0/s", "would admit nothing"),
        ("ten/s", "not a whole number"),
        ("10/s bust 20", "only burst, by, algorithm, hold, timezone and anchor_day"),
        ("10/s algorithm leaky", "is not one of token_bucket"),
        ("5 per minute", "write a slash before the unit, as in 5/min"),
    ],
)
def test_errors_say_what_to_do(text: str, words: str) -> None:
    with pytest.raises(RuleError, match=words) as error:
        keyed(text)
    assert isinstance(error.value, (ValueError, TollkeeperError))


def test_arguments_that_make_no_sense_are_named() -> None:
    with pytest.raises(TypeError, match='a quota must be a str such as "10/s burst 20" or a Quota, not 5'):
        keyed(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cost: -1 is not a whole number"):
        keyed("1/s").check("a", -1)
    with pytest.raises(RuleError, match="-1"):
        Quota.per_second(-1)
    with pytest.raises(ConfigError, match="max_keys: must be at least 1, not -1"):
        keyed("1/s", max_keys=-1)
    with pytest.raises(ConfigError, match="max_keys"):
        keyed("1/s", max_keys=10**15)


def test_threads_together_get_what_one_would() -> None:
    limiter, passed = keyed("1000/h"), []

    def work() -> None:
        passed.append(sum(limiter.check("hot").allowed for _ in range(1000)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(passed) == 1000
