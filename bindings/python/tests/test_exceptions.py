"""Exceptions for single keys: block, allow, grant, lift and list, in memory and in Redis."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta, timezone

import pytest
from conftest import Redis

from tollkeeper import KeyException, Limiter, ManualClock, RuleError, StoreError, UsageError

RULES = [
    {"name": "per-user", "key": "{user_id}", "limit": "2/min"},
    {"name": "all", "key": "global", "limit": "100/h"},
]


@pytest.fixture(params=["memory", "redis"])
def limiter(request: pytest.FixtureRequest, redis_server: Redis, namespace: str) -> Limiter:
    store = "memory:" if request.param == "memory" else redis_server.url
    return Limiter.from_rules(RULES, store=store, namespace=namespace, timeout=5)


def test_a_blocked_key_is_denied_and_nothing_is_charged(limiter: Limiter) -> None:
    async def main() -> None:
        made = await limiter.block("per-user", "42", duration="1h", reason="scraper", made_by="ada")
        assert (made.rule, made.key, made.kind, made.by) == ("per-user", "42", "block", None)
        assert (made.reason, made.made_by, made.limit, made.burst) == ("scraper", "ada", None, None)
        assert made.until is not None and abs(made.until - made.since - timedelta(hours=1)) < timedelta(seconds=1)
        assert abs((made.since - datetime.now(timezone.utc)).total_seconds()) < 60
        verdict = await limiter.check({"user_id": "42"})
        assert not verdict.allowed and verdict.limiting == "per-user" and verdict.source == "exception"
        assert verdict.retry_after is not None and 3500 < verdict.retry_after <= 3600
        assert verdict.rules[0].exception == "block" and verdict.rules[1].exception is None
        other = await limiter.check({"user_id": "7"})
        assert other.allowed and other.rules[1].remaining == 99, "a blocked request charges no other rule"

    asyncio.run(main())


def test_an_allowed_key_is_not_charged_by_that_rule(limiter: Limiter) -> None:
    limiter.allow_sync("per-user", "42")
    verdicts = [limiter.check_sync({"user_id": "42"}) for _ in range(5)]
    assert all(verdict.allowed and verdict.rules[0].source == "exception" for verdict in verdicts)
    assert verdicts[-1].rules[1].remaining == 95, "other rules apply as usual"


def test_a_grant_keeps_what_was_used(limiter: Limiter) -> None:
    for _ in range(2):
        assert limiter.check_sync({"user_id": "42"}).allowed
    assert not limiter.check_sync({"user_id": "42"}).allowed
    made = limiter.grant_sync("per-user", "42", "10/min", burst=20, duration=timedelta(days=7))
    assert (made.kind, made.limit, made.burst) == ("grant", "10/min", 20)
    verdict = limiter.check_sync({"user_id": "42"})
    assert verdict.allowed and verdict.rules[0].remaining == 17 and verdict.rules[0].limit == 20
    assert (verdict.rules[0].exception, verdict.rules[0].source) == ("grant", "exception")
    assert limiter.lift_sync("per-user", "42") is not None
    assert not limiter.check_sync({"user_id": "42"}).allowed


def test_exceptions_are_listed_and_lifted(limiter: Limiter) -> None:
    async def main() -> None:
        assert await limiter.exceptions() == []
        await limiter.block("*", "42")
        await limiter.grant("per-user", "7", "5/min")
        await limiter.allow("per-user", "8")
        shown = [(one.rule, one.key, one.kind) for one in await limiter.exceptions()]
        assert shown == [("*", "42", "block"), ("per-user", "7", "grant"), ("per-user", "8", "allow")]
        assert repr(limiter.exceptions_sync()[1]) == 'KeyException(rule="per-user", key="7", kind="grant", limit="5/min")'
        lifted = await limiter.lift("*", "42")
        assert isinstance(lifted, KeyException) and lifted.kind == "block" and lifted.until is None
        assert await limiter.lift("*", "42") is None, "there was none any more"
        assert (await limiter.check({"user_id": "42"})).allowed
        assert len(await limiter.exceptions()) == 2

    asyncio.run(main())


def test_one_replaces_the_other(limiter: Limiter) -> None:
    limiter.block_sync("per-user", "42")
    limiter.allow_sync("per-user", "42")
    assert [one.kind for one in limiter.exceptions_sync()] == ["allow"]
    assert limiter.check_sync({"user_id": "42"}).allowed


def test_they_end_by_the_stores_clock() -> None:
    clock = ManualClock(1_700_000_000)
    limiter = Limiter.from_rules(RULES, clock=clock)
    limiter.block_sync("per-user", "42", duration=60)
    limiter.block_sync("per-user", "43", until=datetime.fromtimestamp(1_700_000_060, timezone.utc))
    limiter.block_sync("per-user", "44", until=clock.now() + 60)
    for key in ("42", "43", "44"):
        assert limiter.check_sync({"user_id": key}).retry_after == 60
    clock.advance(60)
    assert all(limiter.check_sync({"user_id": key}).allowed for key in ("42", "43", "44"))
    assert limiter.exceptions_sync() == []


def test_a_key_that_looks_like_an_address_is_not_that_address(limiter: Limiter) -> None:
    limiter.replace_rules([{"name": "client", "key": "{api_key|ip}", "limit": "1/h"}])
    assert limiter.allow_sync("client", "198.51.100.7").by == "ip"
    assert all(limiter.check_sync({"ip": "198.51.100.7"}).allowed for _ in range(3))
    assert [limiter.check_sync({"api_key": "198.51.100.7"}).allowed for _ in range(2)] == [True, False]
    assert limiter.allow_sync("client", "198.51.100.7", by="api_key").by == "api_key"
    with pytest.raises(UsageError, match="by: .*no alternative tenant; use api_key or ip"):
        limiter.block_sync("client", "42", by="tenant")
    assert limiter.lift_sync("client", "198.51.100.7", by="api_key") is not None
    assert not limiter.check_sync({"api_key": "198.51.100.7"}).allowed


def test_mistakes_are_named() -> None:
    limiter = Limiter.from_rules(RULES)
    with pytest.raises(UsageError, match="rule: there is none named \"per-usr\""):
        limiter.block_sync("per-usr", "42")
    with pytest.raises(UsageError, match="key: is empty"):
        limiter.block_sync("per-user", "")
    with pytest.raises(UsageError, match="until: is not in the future"):
        limiter.block_sync("per-user", "42", until=datetime(2020, 1, 1, tzinfo=timezone.utc))
    with pytest.raises(UsageError, match="until: cannot be combined with duration"):
        limiter.block_sync("per-user", "42", duration=1, until=time.time() + 5)
    for duration in (-1, float("nan"), 1e300):
        with pytest.raises(UsageError, match="duration: .* is not a duration"):
            limiter.block_sync("per-user", "42", duration=duration)
    with pytest.raises(UsageError, match="duration: is zero"):
        limiter.block_sync("per-user", "42", duration=0)
    with pytest.raises(UsageError, match="duration: "):
        limiter.block_sync("per-user", "42", duration="a while")
    with pytest.raises(RuleError, match="limit: .*fortnight"):
        limiter.grant_sync("per-user", "42", "1/fortnight")
    assert limiter.exceptions_sync() == []


def test_other_processes_follow(redis_server: Redis, namespace: str) -> None:
    one, other = (Limiter.from_rules(RULES, store=redis_server.url, namespace=namespace, timeout=5) for _ in range(2))
    assert other.check_sync({"user_id": "42"}).allowed
    one.block_sync("per-user", "42")
    end = time.monotonic() + 30
    while other.check_sync({"user_id": "42"}, cost=0).allowed:
        assert time.monotonic() < end, "the other limiter does not learn of the exception"
        time.sleep(0.05)
    assert [one.kind for one in other.exceptions_sync()] == ["block"]


def test_an_exception_needs_the_store() -> None:
    limiter = Limiter.from_rules(RULES, store="redis://127.0.0.1:1")
    with pytest.raises(StoreError):
        limiter.block_sync("per-user", "42")
