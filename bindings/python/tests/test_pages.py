"""What the page of the package shows runs as it is written. Its migration tables are in test_migrations.py."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT, Redis
from fastapi.testclient import TestClient

from tollkeeper import Limiter

PAGE = (ROOT / "docs" / "guide" / "python.md").read_text()


def blocks() -> dict[str, list[str]]:
    """The Python blocks by the heading that they are under."""
    found: dict[str, list[str]] = {}
    for section in re.split(r"^#+ ", PAGE, flags=re.M)[1:]:
        title = section.split("\n", 1)[0]
        found[title] = re.findall(r"^```python\n(.*?)^```", section, flags=re.M | re.S)
    return {title: code for title, code in found.items() if code}


BLOCKS = blocks()
PER_USER = {"name": "per-user", "key": "{user_id}", "limit": "10,000/day"}
BY_ADDRESS = {"name": "per-address", "key": "{ip}", "limit": "10/s"}


async def ask_the_model() -> int:
    return 2311


async def look_up(key: bytes | None) -> Any:
    return SimpleNamespace(id=key and key.decode(), plan="free")


def test_all_of_it_is_tried() -> None:
    assert set(BLOCKS) == {
        "Start", "A single limit", "Rules", "Rules in Postgres", "Several requests in one call",
        "Exceptions for single keys", "Costs that are known later", "Concurrency slots", "Starlette", "Litestar",
        "Limits that differ by customer", "Tests",
    }


@pytest.mark.parametrize("title", BLOCKS)
def test_blocks_run(title: str, tmp_path: Path, redis_server: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tollkeeper.yaml").write_text("rules:\n  - { name: all, key: '{user_id}', limit: 10/s }\n")
    # What a reader has at that place of the page.
    names: dict[str, Any] = {
        "__name__": __name__,
        "limiter": Limiter.from_rules([PER_USER, BY_ADDRESS]),
        "Limiter": Limiter,
        "ask_the_model": ask_the_model,
        "look_up": look_up,
    }
    exec("from datetime import datetime, timezone", names)
    for code in BLOCKS[title]:
        here = code.replace("redis://127.0.0.1:6379", redis_server.url)
        compiled = compile(here, title, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        done = eval(compiled, names)
        if inspect.iscoroutine(done):
            asyncio.run(done)
    if title == "Start":
        assert len(BLOCKS[title][0].strip().splitlines()) <= 10, "a start of ten lines"
        client = TestClient(names["app"])
        assert [client.post("/login").status_code for _ in range(6)] == [200] * 5 + [429]
    if title in ("Starlette", "Litestar"):
        answers = [TestClient(names["app"]).post("/login") for _ in range(6)]
        assert [answer.status_code < 300 for answer in answers] == [True] * 5 + [False] and answers[5].status_code == 429
        assert answers[0].headers["ratelimit-policy"] == '"requests";q=20;w=12,"login";q=5;w=60'
    if title == "Limits that differ by customer":
        client = TestClient(names["app"])
        for headers in ({"x-api-key": "a"}, {}):
            assert [client.get("/exports", headers=headers).status_code for _ in range(2)] == [200, 429]
            assert [client.get("/", headers=headers).status_code for _ in range(9)] == [404] * 8 + [429]
