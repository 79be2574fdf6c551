"""The package answers as the independent model does that wrote the vector files of the core, on memory and on Redis."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import ROOT, Redis

from tollkeeper import Limiter, ManualClock, keyed

VECTORS = ROOT / "crates" / "core" / "tests" / "vectors"
DECISIONS = json.loads((VECTORS / "decisions.json").read_text())["cases"]
VERDICTS = json.loads((VECTORS / "verdicts.json").read_text())["cases"]


def us(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1_000_000)


def line(quota: dict[str, Any]) -> str:
    """A quota of the vectors as people write it."""
    count, algorithm = quota["count"], quota["algorithm"]
    if "calendar" in quota:
        unit, zone, day = (quota["calendar"][field] for field in ("unit", "timezone", "anchor_day"))
        return f"{count}/{unit} algorithm {algorithm} timezone {zone} anchor_day {day}"
    period = f"{quota['period_us'] // 1000}ms"
    if algorithm == "concurrency":
        return f"{count} algorithm concurrency hold {period}"
    burst = f" burst {quota['burst']}" if algorithm in ("token_bucket", "gcra", "leaky_bucket") else ""
    return f"{count}/{period}{burst} algorithm {algorithm}"


def spec(rule: dict[str, Any]) -> dict[str, Any]:
    quota = rule["quota"]
    written: dict[str, Any] = {key: rule[key] for key in ("name", "key", "when", "cost", "mode")}
    written["limit"] = f"{quota['count']}/{quota['period_us'] // 1000}ms"
    if quota["algorithm"] in ("token_bucket", "gcra", "leaky_bucket"):
        written["burst"] = quota["burst"]
    written["algorithm"] = quota["algorithm"]
    return written


@pytest.mark.parametrize("case", DECISIONS, ids=lambda case: case["name"])
def test_keyed_decides_as_the_model(case: dict[str, Any]) -> None:
    clock = ManualClock()
    limiter = keyed(line(case["quota"]), clock=clock)
    for at, cost, allowed, retry_after, remaining, reset_after, delay in case["steps"]:
        clock.set_us(at)
        decision = limiter.check("key", cost)
        got = (decision.allowed, us(decision.retry_after), decision.remaining, us(decision.reset_after), us(decision.delay))
        assert got == (allowed, retry_after, remaining, reset_after, delay), (case["name"], at)


@pytest.mark.parametrize("store", ["memory", "redis"])
def test_single_rules_decide_as_the_model(store: str, redis_server: Redis, namespace: str) -> None:
    rules = []
    for index, case in enumerate(DECISIONS):
        (rule,) = Limiter.from_rules([line(case["quota"])]).rules
        rules.append({**rule, "name": f"case-{index}", "key": "global", "when": {"case": str(index)}})
    clock = ManualClock()
    url = "memory:" if store == "memory" else redis_server.url
    limiter = Limiter.from_rules(rules, store=url, clock=clock, namespace=namespace, timeout=10)
    for index, case in enumerate(DECISIONS):
        for at, cost, allowed, retry_after, remaining, reset_after, delay in case["steps"]:
            clock.set_us(at)
            verdict = limiter.check_sync({"case": str(index)}, cost)
            (row,) = verdict.rules
            got = (row.allowed, us(row.retry_after), row.remaining, us(row.reset_after), us(row.delay))
            assert got == (allowed, retry_after, remaining, reset_after, delay), (case["name"], at)


@pytest.mark.parametrize("store", ["memory", "redis"])
@pytest.mark.parametrize("case", VERDICTS, ids=lambda case: case["name"])
def test_verdicts_are_those_of_the_model(case: dict[str, Any], store: str, redis_server: Redis, namespace: str) -> None:
    clock = ManualClock()
    url = "memory:" if store == "memory" else redis_server.url
    rules = [spec(rule) for rule in case["rules"]]
    limiter = Limiter.from_rules(rules, store=url, clock=clock, namespace=namespace, timeout=10)
    for event in case["events"]:
        clock.set_us(event["at_us"])
        verdict = limiter.check_sync(event["attributes"], event["cost"])
        rows = [
            {
                "rule": row.rule,
                "key": row.key,
                "allowed": row.allowed,
                "shadow": row.shadow,
                "limit": row.limit,
                "retry_after_us": us(row.retry_after),
                "delay_us": us(row.delay),
                "remaining": row.remaining,
                "reset_after_us": us(row.reset_after),
            }
            for row in verdict.rules
        ]
        assert rows == event["rules"], event
        assert verdict.source == "store"
        assert (verdict.allowed, verdict.limiting) == (event["allowed"], event["limiting"])
        assert us(verdict.retry_after) == event["retry_after_us"]
