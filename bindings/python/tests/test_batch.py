"""Several requests in one call, each decided by itself."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import ChainMap

import pytest
from conftest import Redis

from tollkeeper import CostError, Limiter, OverloadedError, UsageError

RULES = [
    {"name": "per-user", "key": "{user_id}", "limit": "2/min"},
    {"name": "all", "key": "global", "limit": "100/h"},
]


@pytest.fixture(params=["memory", "redis"])
def limiter(request: pytest.FixtureRequest, redis_server: Redis, namespace: str) -> Limiter:
    store = "memory:" if request.param == "memory" else redis_server.url
    return Limiter.from_rules(RULES, store=store, namespace=namespace, timeout=5)


def test_each_is_decided_by_itself(limiter: Limiter) -> None:
    async def main() -> None:
        verdicts = await limiter.check_many([{"user_id": "1"}, {"user_id": "2"}, {"user_id": "1"}, {"user_id": "1"}])
        assert verdicts[1].allowed and [row.key for verdict in verdicts for row in verdict.rules[:1]] == ["1", "2", "1", "1"]
        (denied,) = [verdict for verdict in verdicts if not verdict.allowed]
        assert denied.limiting == "per-user" and denied.headers["retry-after"] == "30"
        assert await limiter.check_many([]) == []

    asyncio.run(main())
    (last,) = limiter.check_many_sync([{"user_id": "3"}])
    assert last.rules[1].remaining == 96


def test_costs_and_rules(limiter: Limiter) -> None:
    verdicts = limiter.check_many_sync([({"user_id": "1"}, 30), ({"user_id": "2"}, 101), {"user_id": "3"}], rules=["all"])
    assert [verdict.allowed for verdict in verdicts] == [True, False, True]
    assert [row.rule for verdict in verdicts for row in verdict.rules] == ["all"] * 3
    assert limiter.check_sync({}, cost=0).rules[0].remaining == 69


def test_any_mapping_and_any_iterable() -> None:
    limiter = Limiter.from_rules(RULES)
    requests = (ChainMap({"user_id": user}, {"plan": "free"}) for user in ("1", "2"))
    assert [verdict.allowed for verdict in limiter.check_many_sync(requests)] == [True, True]
    assert limiter.check_sync(ChainMap({"user_id": "1"})).rules[0].remaining == 0
    with pytest.raises(TypeError, match="attributes must be a mapping"):
        limiter.check_sync([("user_id", "1")])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="requests must be a list"):
        limiter.check_many_sync({"user_id": "1"})  # type: ignore[dict-item]


def test_one_invalid_request_refuses_all_and_nothing_is_charged(limiter: Limiter) -> None:
    limiter.replace_rules([{"name": "parts", "key": "global", "limit": "10/h", "cost": "parts"}])
    with pytest.raises(CostError, match=r"requests\[1\]: .*parts"):
        limiter.check_many_sync([{"parts": 3}, {"parts": "many"}])
    with pytest.raises(UsageError, match=r"requests\[0\]: there is no rule `part`"):
        limiter.check_many_sync([{"parts": 3}], rules=["part"])
    assert limiter.check_sync({"parts": 1}, cost=0).rules[0].remaining == 10


def test_an_exact_total_in_one_call(redis_server: Redis, namespace: str) -> None:
    limiter = Limiter.from_rules(["100/h by user"], store=redis_server.url, namespace=namespace, timeout=5)
    verdicts = limiter.check_many_sync([{"user": "a"} for _ in range(500)])
    assert sum(verdict.allowed for verdict in verdicts) == 100


def test_requests_that_were_shed_do_not_hide_those_that_were_decided(own_redis: Redis, namespace: str) -> None:
    """Some of a batch may have been charged when others find no room to wait, so the exception carries their verdicts."""
    limiter = Limiter.from_rules(["5/h by user"], store=own_redis.url, namespace=namespace, timeout=5)
    limiter.connect_sync()
    process = own_redis.process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    threading.Timer(2, lambda: process.send_signal(signal.SIGCONT)).start()
    with pytest.raises(OverloadedError, match="too many") as raised:
        limiter.check_many_sync([{"user": number} for number in range(20_000)])
    verdicts = raised.value.verdicts
    decided = [verdict for verdict in verdicts if verdict is not None]
    assert len(verdicts) == 20_000 and 0 < len(decided) < 20_000
    assert all(verdict.allowed and verdict.rules[0].remaining == 4 for verdict in decided)


def test_a_large_batch_on_a_connection_that_is_open(redis_server: Redis, namespace: str) -> None:
    """More than thirty requests at once on a limiter that was connected waited forever: nobody made their call."""
    limiter = Limiter.from_rules(["100/h by user"], store=redis_server.url, namespace=namespace, timeout=5)
    limiter.connect_sync()
    assert sum(verdict.allowed for verdict in limiter.check_many_sync([{"user": "a"}] * 200)) == 100

    async def main() -> None:
        assert not any(verdict.allowed for verdict in await limiter.check_many([{"user": "a"}] * 200))

    asyncio.run(main())
