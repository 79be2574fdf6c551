"""Rules over a store, without a web framework."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from conftest import Redis

from tollkeeper import ConfigError, CostError, Limiter, ManualClock, RuleError, StoreError, UsageError

RULES = [
    {"name": "per-user", "key": "{user_id}", "limit": "2/min", "scope": "user"},
    {"name": "all", "key": "global", "limit": "100/h"},
]


def test_all_or_nothing() -> None:
    async def main() -> None:
        limiter = Limiter.from_rules(RULES)
        for _ in range(2):
            assert (await limiter.check({"user_id": "42"})).allowed
        verdict = await limiter.check({"user_id": "42"})
        assert not verdict and verdict.limiting == "per-user" and verdict.source == "store"
        assert verdict.retry_after is not None and 29 < verdict.retry_after <= 30
        assert [(row.rule, row.allowed, row.remaining) for row in verdict.rules] == [("per-user", False, 0), ("all", True, 98)]
        assert verdict.headers["retry-after"] == "30"
        assert verdict.headers["ratelimit-policy"] == '"per-user";q=2;w=60,"all";q=100;w=3600'

    asyncio.run(main())


def test_soft_limits_are_reported() -> None:
    rules = [{"name": "soft", "key": "{user_id}", "limit": "2/h", "mode": "annotate"}, RULES[1]]
    limiter = Limiter.from_rules(rules, clock=ManualClock())
    assert limiter.check_sync({"user_id": "42"}).annotations == []
    verdict = limiter.check_sync({"user_id": "42"}, cost=4)
    assert verdict.allowed and verdict.limiting is None
    [over] = verdict.annotations
    assert (over.rule, over.limit, over.over_by, over.retry_after) == ("soft", 2, 3, None)
    assert repr(over) == 'Annotation(rule="soft", limit=2, over_by=3)'
    [over] = limiter.check_sync({"user_id": "42"}, cost=2).annotations
    assert (over.over_by, over.retry_after) == (1, 1800.0)


def test_some_rules_only() -> None:
    limiter = Limiter.from_rules(RULES)
    request = {"user_id": "42"}
    assert [row.rule for row in limiter.check_sync(request, rules=["all"]).rules] == ["all"]
    assert [row.remaining for row in limiter.check_sync(request).rules] == [1, 98], "per-user was not charged by the first"
    with limiter.reserve_sync(request, cost=10, rules=["all"]) as reservation:
        assert [row.rule for row in reservation.verdict.rules] == ["all"]
    with limiter.acquire_sync(request, rules=["per-user"]) as permit:
        assert [row.rule for row in permit.verdict.rules] == ["per-user"]
    with pytest.raises(UsageError, match="there is no rule `al`"):
        limiter.check_sync(request, rules=["per-user", "al"])
    with pytest.raises(UsageError, match="rules: is empty"):
        limiter.check_sync(request, rules=[])
    assert [row.remaining for row in limiter.check_sync(request, cost=0).rules] == [0, 88], "an error charges nothing"


def test_an_answer_is_a_coroutine_to_asyncio() -> None:
    async def main() -> None:
        limiter = Limiter.from_rules(RULES)
        assert (await asyncio.create_task(limiter.check({"user_id": 1}))).allowed  # type: ignore[arg-type]
        assert len(await asyncio.gather(*(limiter.check({"user_id": i}) for i in range(5)))) == 5
        assert (await asyncio.wait_for(limiter.check({"user_id": 77}), 1)).allowed
        limiter.check({"user_id": 9})  # not awaited, and nobody complains

    asyncio.run(main())


def test_memory_needs_no_event_loop_and_no_thread() -> None:
    code = """
import os, sys
import tollkeeper
assert "asyncio" not in sys.modules and "socket" not in sys.modules, "importing it does no work"
import tollkeeper.asgi, tollkeeper.wsgi
limiter = tollkeeper.Limiter.from_rules(["2/min by user_id"])
redis = tollkeeper.Limiter.from_rules(["2/min by user_id"], store="redis://127.0.0.1:1")
assert limiter.check_sync({"user_id": 1}).allowed
with limiter.reserve_sync({"user_id": 2}) as reservation:
    reservation.settle_sync(1)
assert len(os.listdir("/proc/self/task")) == 1, "a thread was started before anything had to be sent"
"""
    if sys.platform == "linux":
        subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("style", "names"),
    [
        ("draft-11", {"ratelimit-policy", "ratelimit"}),
        ("draft-03", {"ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"}),
        ("draft-06", {"ratelimit-limit", "ratelimit-remaining", "ratelimit-reset", "ratelimit-policy"}),
        ("draft-07", {"ratelimit", "ratelimit-policy"}),
        ("x-ratelimit-epoch", {"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"}),
        ("x-ratelimit-delta", {"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"}),
        ("none", set()),
    ],
)
def test_headers_in_every_style(style: str, names: set[str]) -> None:
    clock = ManualClock(1_700_000_000)
    limiter = Limiter.from_rules(["1/min burst 1 by user"], headers=style, clock=clock)  # type: ignore[arg-type]
    assert set(limiter.check_sync({"user": "a"}).headers) == names
    denied = limiter.check_sync({"user": "a"}).headers
    assert set(denied) == names | {"retry-after"} and denied["retry-after"] == "60"
    if style == "x-ratelimit-epoch":
        assert denied["x-ratelimit-reset"] == "1700000060"


def test_rules_change_while_it_runs() -> None:
    limiter = Limiter.from_rules(RULES)
    for _ in range(2):
        limiter.check_sync({"user_id": "1"})
    assert not limiter.check_sync({"user_id": "1"}).allowed
    limiter.replace_rules([{**RULES[0], "limit": "10/min"}])
    assert limiter.check_sync({"user_id": "1"}).rules[0].remaining == 7, "what is missing stays missing"
    with pytest.raises(RuleError):
        limiter.replace_rules([{"name": "bad"}])
    assert [rule["name"] for rule in limiter.rules] == ["per-user"]


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "tollkeeper.yaml"
    path.write_text("""
listen: { http: 127.0.0.1:8080 }
headers: x-ratelimit-delta
identify: { user_id: header.x-user-id }
rules:
  - name: free
    when: { plan: free }
    key: "{user_id}"
    limit: 1/min
""")
    limiter = Limiter.from_file(path)
    assert limiter.check_sync({"user_id": "1", "plan": "free"}).headers["x-ratelimit-remaining"] == "0"
    assert not limiter.check_sync({"user_id": "1", "plan": "free"}).allowed
    assert limiter.check_sync({"user_id": "1", "plan": "paid"}).rules == []
    path.write_text("rules:\n  - name: free\n    key: '{user_id}'\n    limit: 1/fortnight\n")
    with pytest.raises(ValueError, match="tollkeeper.yaml.*not a unit of time"):
        limiter.replace_rules_from_file(path)
    path.write_text("rulez: []")
    with pytest.raises(ConfigError, match="tollkeeper.yaml"):
        Limiter.from_file(path)
    with pytest.raises(ConfigError, match="there is no such file"):
        Limiter.from_file(tmp_path / "none.yaml")


def test_estimates_are_settled() -> None:
    async def main() -> None:
        limiter = Limiter.from_rules([{"name": "tokens", "key": "{user_id}", "limit": "10,000/day"}])
        async with limiter.reserve({"user_id": "42"}, cost=4000) as reservation:
            assert reservation.allowed and reservation.verdict.rules[0].remaining == 6000
            (settled,) = await reservation.settle(2311)
            assert (settled.reserved, settled.refunded, settled.remaining) == (4000, 1689, 7689)
            with pytest.raises(UsageError, match="settled or released"):
                await reservation.settle(1)
        async with limiter.reserve({"user_id": "42"}, cost=9000) as denied:
            assert not denied.allowed

    asyncio.run(main())


def test_slots_are_given_back_however_a_block_is_left() -> None:
    limiter = Limiter.from_rules([{"name": "exports", "key": "{user_id}", "limit": 1, "algorithm": "concurrency"}])
    with limiter.acquire_sync({"user_id": "1"}) as permit:
        assert permit.allowed
        assert not limiter.acquire_sync({"user_id": "1"}).allowed
    with pytest.raises(KeyError), limiter.acquire_sync({"user_id": "1"}) as permit:
        assert permit.allowed
        raise KeyError

    async def main() -> None:
        async with limiter.acquire({"user_id": "1"}) as permit:
            assert permit.allowed
            async with limiter.acquire({"user_id": "1"}) as second:
                assert not second.allowed
        permit = await limiter.acquire({"user_id": "1"})
        assert permit.allowed
        permit.release()
        assert limiter.acquire_sync({"user_id": "1"}).allowed

    asyncio.run(main())


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Limiter.from_rules([{"name": "a", "key": "{x}", "limit": "0/s"}]), RuleError, "rule `a`.*admit nothing"),
        (lambda: Limiter.from_rules([{"name": "a", "key": "{x}", "limit": "1/s", "burts": 3}]), RuleError, "burts"),
        (lambda: Limiter.from_rules([], store="mysql://x"), ConfigError, "is not a store"),
        (lambda: Limiter.from_rules([], trusted_proxies=["10.0.0.0/99"]), ConfigError, "trusted_proxies"),
        (lambda: Limiter.from_rules([], headers="draft-99"), ConfigError, "draft-99"),  # type: ignore[arg-type]
        (lambda: Limiter.from_rules([], deny_status=200), ConfigError, "deny_status"),
        (lambda: Limiter.from_rules([], identify={"user": "headers.x"}), ConfigError, "identify.user"),
        (lambda: Limiter.from_rules([], store="redis://x", timeout=100), ConfigError, "timeout"),
        (lambda: Limiter.from_rules("10/s"), TypeError, "list"),
        (lambda: Limiter.from_rules({"name": "a", "key": "{x}", "limit": "1/s"}), TypeError, "rules must be a list of dicts"),  # type: ignore[arg-type]
        (lambda: Limiter.from_rules(5), TypeError, "rules must be a list of dicts"),  # type: ignore[arg-type]
        (lambda: Limiter.from_rules([], trusted_proxies="10.0.0.1"), TypeError, "trusted_proxies must be a list .* not '10.0.0.1'"),
        (lambda: Limiter.from_rules([], timeout=-1), ConfigError, "timeout: -1 is not a duration"),
        (lambda: Limiter.from_rules([], max_keys=-1), ConfigError, "max_keys.*-1"),
        (lambda: Limiter.from_rules([], ipv6_prefix=300), ConfigError, "ipv6_prefix.*300"),
        (lambda: Limiter.from_rules([], deny_status=70000), ConfigError, "deny_status.*70000"),
    ],
)
def test_mistakes_are_named_at_once(make: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()  # type: ignore[operator]


def test_costs_that_are_impossible_are_named() -> None:
    """A negative cost raised an OverflowError that did not say of what."""
    limiter = Limiter.from_rules(RULES)
    for ask in (limiter.check_sync, limiter.acquire_sync, limiter.reserve_sync):
        with pytest.raises(ValueError, match="cost: -1 is not a whole number from 0 to 4294967295"):
            ask({"user_id": "1"}, -1)
        with pytest.raises(TypeError, match="cost: 1.5 is not a whole number"):
            ask({"user_id": "1"}, 1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"requests\[1\]: .*is not \(attributes, cost\)"):
        limiter.check_many_sync([{"user_id": "1"}, ({"user_id": "1"}, -1)])
    with limiter.reserve_sync({"user_id": "1"}) as reservation:
        with pytest.raises(ValueError, match="cost: -1"):
            reservation.settle_sync(-1)
        assert reservation.settle_sync(0)[0].refunded == 1, "the mistake has not used it up"


def test_attributes_are_texts() -> None:
    """An object without a text of its own was limited by its address in memory, so by nothing."""

    class User:
        pass

    limiter = Limiter.from_rules([RULES[0]])
    identity = uuid.UUID(int=7)
    for value, key in ((7, "7"), (True, "true"), (b"ann", "ann"), (1.5, "1.5"), (identity, str(identity))):
        assert limiter.check_sync({"user_id": value}).rules[0].key == key  # type: ignore[dict-item]
    assert limiter.check_sync({"user_id": None}).rules == []
    for wrong in (User(), ["ann"], {"id": 7}, ("a", "b")):
        with pytest.raises(TypeError, match="user_id: an attribute must be a str, a number or a bool, not (User|list|dict|tuple)"):
            limiter.check_sync({"user_id": wrong})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="attributes: a name must be a str, not 1"):
        limiter.check_sync({1: "a"})  # type: ignore[dict-item]


def test_without_an_event_loop_it_says_what_to_call() -> None:
    with pytest.raises(UsageError, match="no event loop of asyncio is running.*_sync"):
        Limiter.from_rules(RULES, store="redis://127.0.0.1:1").check({"user_id": "1"})


def test_a_cost_that_is_no_number() -> None:
    limiter = Limiter.from_rules([{"name": "a", "key": "global", "limit": "10/s", "cost": "parts"}])
    assert limiter.check_sync({"parts": 3}).rules[0].remaining == 7
    with pytest.raises(CostError, match="parts"):
        limiter.check_sync({"parts": "many"})


def test_inspect_and_reset(redis_server: Redis, namespace: str) -> None:
    for store in ("memory:", redis_server.url):
        limiter = Limiter.from_rules(RULES, store=store, namespace=namespace, timeout=5)
        limiter.check_sync({"user_id": "7"})
        assert limiter.inspect_sync("per-user", "7")[0]["remaining"] == 1
        assert limiter.reset_sync("per-user", "7") and not limiter.reset_sync("per-user", "7")
        with pytest.raises(UsageError, match="no rule `nobody`"):
            limiter.reset_sync("nobody", "7")


def test_a_store_that_is_not_usable_is_said_on_connect() -> None:
    limiter = Limiter.from_rules(RULES, store="redis://127.0.0.1:1")
    with pytest.raises(StoreError):
        limiter.connect_sync()
