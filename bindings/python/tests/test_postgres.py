"""Rules in a real Postgres: read with the first request, followed while they change, kept while the database is unreachable."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import Postgres
from test_route_rules import ROUTES, routes_of

from tollkeeper import ConfigError, Limiter, StoreError, UsageError
from tollkeeper.asgi import RateLimitMiddleware

PATIENCE = 60.0
INSERT = "insert into rate_limit_rule (name, key_pattern, rate, period) values"


def with_rule(postgres: Postgres, rate: int = 2, key: str = "{user_id}") -> None:
    """The tables, made as a limiter makes them, and one rule."""
    Limiter.from_postgres(postgres.url).connect_sync()
    postgres.sql(f"{INSERT} ('per-user', '{key}', {rate}, '1 hour')")


def comes_to(limiter: Limiter, limit: str) -> None:
    """Waits until the limiter has followed."""
    end = time.monotonic() + PATIENCE
    while [rule["limit"] for rule in limiter.rules] != [limit]:
        assert time.monotonic() < end, (limiter.rules, limiter.rules_status)
        time.sleep(0.02)


def test_rules_are_read_with_the_first_request_and_followed(postgres: Postgres) -> None:
    with_rule(postgres)
    limiter = Limiter.from_postgres(postgres.url)
    assert limiter.rules == [] and limiter.rules_status is None, "making one connects nothing"
    request = {"user_id": "42"}
    assert [limiter.check_sync(request).allowed for _ in range(3)] == [True, True, False]
    assert limiter.rules_status == {"version": 1, "refused": None, "unreachable": None}
    postgres.sql("update rate_limit_rule set rate = 5")
    comes_to(limiter, "5/h")
    assert [limiter.check_sync(request).allowed for _ in range(4)] == [True, True, True, False], "two were used before"


def test_many_tasks_wait_for_one_reading(postgres: Postgres) -> None:
    with_rule(postgres, 10)

    async def main() -> None:
        limiter = Limiter.from_postgres(postgres.url)
        verdicts = await asyncio.gather(*(limiter.check({"user_id": "42"}) for _ in range(30)))
        assert sum(verdict.allowed for verdict in verdicts) == 10

    asyncio.run(main())


def test_a_bad_rule_is_refused_and_the_last_good_ones_stay(postgres: Postgres) -> None:
    with_rule(postgres)
    limiter = Limiter.from_postgres(postgres.url)
    limiter.connect_sync()
    postgres.sql(f"{INSERT} ('broken', '{{', 1, '1 hour')")
    end = time.monotonic() + PATIENCE
    while not (status := limiter.rules_status or {})["refused"]:
        assert time.monotonic() < end
        time.sleep(0.02)
    version, problem = status["refused"]
    assert version == 2 and "broken" in problem and status["version"] == 1
    assert [rule["name"] for rule in limiter.rules] == ["per-user"]


def test_while_the_database_is_away_rules_stay_and_a_snapshot_serves_a_start(postgres: Postgres, tmp_path: Path) -> None:
    with_rule(postgres)
    snapshot = tmp_path / "rules.snapshot"
    running = Limiter.from_postgres(postgres.url, snapshot=snapshot)
    running.connect_sync()
    postgres.stop()
    assert running.check_sync({"user_id": "1"}).allowed
    started = Limiter.from_postgres(postgres.url, snapshot=snapshot)
    assert [started.check_sync({"user_id": "2"}).allowed for _ in range(3)] == [True, True, False]
    without = Limiter.from_postgres(postgres.url)
    with pytest.raises(StoreError, match="rules_from: .*rules_snapshot"):
        without.check_sync({"user_id": "3"})
    postgres.start()
    postgres.sql("update rate_limit_rule set rate = 7")
    comes_to(started, "7/h")
    comes_to(running, "7/h")
    end = time.monotonic() + PATIENCE
    while True:
        try:
            assert without.check_sync({"user_id": "3"}).allowed
            break
        except StoreError:
            assert time.monotonic() < end
            time.sleep(0.1)


def test_the_file_may_say_it(postgres: Postgres, tmp_path: Path) -> None:
    with_rule(postgres, 1)
    file = tmp_path / "tollkeeper.yaml"
    file.write_text(f"rules_from: {postgres.url}\n")
    limiter = Limiter.from_file(file)
    assert [limiter.check_sync({"user_id": "42"}).allowed for _ in range(2)] == [True, False]
    with pytest.raises(UsageError, match="the rules come from Postgres"):
        limiter.replace_rules(["5/min"])
    file.write_text("rules_from: mysql://127.0.0.1/limits\n")
    with pytest.raises(ConfigError, match=r"tollkeeper.yaml:1:13: rules_from: is not a Postgres URL"):
        Limiter.from_file(file)


def test_the_first_request_of_a_web_application_has_what_the_rules_need(postgres: Postgres) -> None:
    with_rule(postgres, 1, "{header.x-api-key}")
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            sent.append(message["status"])

    async def main() -> None:
        limited = RateLimitMiddleware(app, limiter=Limiter.from_postgres(postgres.url))
        for key in [b"a", b"a", b"b"]:
            scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "client": ("192.0.2.1", 1)}
            await limited({**scope, "headers": [(b"x-api-key", key)]}, None, send)  # type: ignore[arg-type]

    asyncio.run(main())
    assert sent == [200, 429, 200]


@ROUTES
def test_the_first_request_of_a_route_does_too(framework: str, is_async: bool, postgres: Postgres) -> None:
    with_rule(postgres, 1, "{header.x-key}")
    client = routes_of(framework, is_async, limiter=Limiter.from_postgres(postgres.url))
    assert [client.get("/", headers={"x-key": key}).status_code for key in "aab"] == [200, 429, 200]


def _child(limiter: Limiter, allowed: Any, url: str) -> None:
    allowed.put([limiter.check_sync({"user_id": "child"}).allowed for _ in range(3)])
    end = time.monotonic() + PATIENCE
    while limiter.rules_status is None and time.monotonic() < end:
        time.sleep(0.02)
    allowed.put(limiter.rules_status)


def test_a_forked_process_follows_by_itself(postgres: Postgres) -> None:
    with_rule(postgres)
    limiter = Limiter.from_postgres(postgres.url)
    limiter.connect_sync()
    context = multiprocessing.get_context("fork")
    allowed = context.Queue()
    child = context.Process(target=_child, args=(limiter, allowed, postgres.url))
    child.start()
    assert allowed.get(timeout=PATIENCE) == [True, True, False], "by the rules of its parent"
    assert allowed.get(timeout=PATIENCE) == {"version": 1, "refused": None, "unreachable": None}
    child.join(PATIENCE)
    assert child.exitcode == 0
