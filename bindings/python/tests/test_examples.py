"""The examples run, and are what type checkers want."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import pytest
from conftest import ROOT, Redis, free_port, serving

EXAMPLES = ROOT / "examples" / "python"
PACKAGE = ROOT / "bindings" / "python" / "python"
TESTS = Path(__file__).resolve().parent


def codes(port: int, path: str, count: int) -> list[int]:
    found = []
    for _ in range(count):
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method="POST", headers={"x-user": "a"})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                found.append(answer.status)
                assert answer.headers["ratelimit"]
        except HTTPError as error:
            found.append(error.code)
            assert error.headers["retry-after"] and error.headers["ratelimit"]
    return found


@pytest.mark.parametrize("store", ["memory", "redis"])
@pytest.mark.parametrize(
    "command",
    [
        ["-m", "uvicorn", "fastapi_app:app", "--log-level", "warning", "--port"],
        ["-m", "gunicorn", "flask_app:app", "--log-level", "warning", "--bind"],
        ["-m", "gunicorn", "django_app:application", "--log-level", "warning", "--bind"],
        ["-m", "gunicorn", "drf_app:application", "--log-level", "warning", "--bind"],
    ],
    ids=["fastapi", "flask", "django", "drf"],
)
def test_web(command: list[str], store: str, own_redis: Redis) -> None:
    port = free_port()
    url = own_redis.url if store == "redis" else "memory:"
    where = str(port) if command[-1] == "--port" else f"127.0.0.1:{port}"
    with serving([*command, where], port, STORE=url):
        assert codes(port, "/login", 6) == [200] * 5 + [429]


def test_plain() -> None:
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    done = subprocess.run([sys.executable, EXAMPLES / "plain.py"], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "allowed: True, left: 4",
        "exporting",
        "tokens: 7689 left",
        "allowed: False, by: tokens, wait: 11327 s",
    ]


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_types(checker: str) -> None:
    environment = {**os.environ, "MYPYPATH": str(PACKAGE), "PYTHONPATH": str(PACKAGE)}
    examples = sorted(str(path) for path in EXAMPLES.glob("*.py"))
    if checker == "mypy":
        command = ["-m", "mypy", "--strict", "--no-error-summary", *examples, str(TESTS / "typed.py"), str(PACKAGE / "tollkeeper")]
    else:
        command = ["-m", "pyright", "--pythonpath", sys.executable, "--project", str(TESTS / "pyrightconfig.json")]
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
