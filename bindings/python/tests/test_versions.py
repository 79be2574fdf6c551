"""The one extension in every CPython that can be had: it is built against the stable ABI of 3.9."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Redis

SOURCES = Path(__file__).resolve().parents[1] / "python"
SMOKE = """
import asyncio, os, sys, time, warnings
from tollkeeper import Limiter, StoreError, UsageError, Verdict, keyed

one = keyed("9/min")
decisions = [one.check("a"), one.check("a", 2), one.check("a", cost=1), one.check(key="a"), one.check(b"a")]
assert [decision.remaining for decision in decisions] == [8, 6, 5, 4, 8]
try:
    one.check("a", costs=1)
except TypeError as error:
    assert "unexpected keyword argument 'costs'" in str(error), error
limiter = Limiter.from_rules([{"name": "per-user", "key": "{user_id}", "limit": "2/min"}])

async def main():
    verdicts = [await limiter.check({"user_id": "42"}) for _ in range(3)]
    assert [verdict.allowed for verdict in verdicts] == [True, True, False]
    assert isinstance(verdicts[0], Verdict) and verdicts[2].headers["retry-after"] == "30"
    async with limiter.reserve({"user_id": "7"}) as reservation:
        assert (await reservation.settle(0))[0].refunded == 1
    made = await limiter.block("per-user", "42", duration="1h")
    assert made.kind == "block" and made.until > made.since

asyncio.run(main())

# One limit on Redis: tasks of an event loop, then a forked process.
rule = {"name": "shared", "key": "{user}", "limit": "10/h"}
shared = Limiter.from_rules([rule], store=sys.argv[1], namespace=sys.argv[2], timeout=10)

async def together():
    return sum(verdict.allowed for verdict in await asyncio.gather(*(shared.check({"user": "a"}) for _ in range(8))))

assert asyncio.run(together()) == 8
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    child = os.fork()
if child == 0:
    passed = 255
    try:
        # On a busy machine a first attempt to connect can take longer than a request would wait.
        for attempt in range(100):
            try:
                shared.connect_sync()
                break
            except StoreError:
                time.sleep(0.2)
        verdicts = [shared.check_sync({"user": "a"}) for _ in range(8)]
        passed = sum(verdict.allowed for verdict in verdicts)
        if passed != 2:
            print([(verdict.allowed, verdict.source) for verdict in verdicts], file=sys.stderr, flush=True)
    finally:
        os._exit(passed)
status = os.waitpid(child, 0)[1]
assert status == 2 << 8, status
try:
    limiter.check_sync({}, rules=["nobody"])
except UsageError as error:
    print("%d.%d" % sys.version_info[:2], error)
"""


def interpreters() -> dict[str, str]:
    """The path of each CPython from 3.9 on, by its version."""
    found = {"{}.{}".format(*sys.version_info[:2]): sys.executable}
    paths = [shutil.which(f"python3.{minor}") for minor in range(9, 20)]
    paths += glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python3"))
    # Those of Debian's next release, which ./run python installs.
    paths += glob.glob(str(ROOT / "target" / "tools" / "pythons" / "python3.*"))
    for path in filter(None, paths):
        # A shim of pyenv may stand for a version that is not selected.
        shown = subprocess.run([path, "--version"], capture_output=True, text=True)
        version = re.match(r"Python 3\.(\d+)\.", shown.stdout)
        if shown.returncode == 0 and version and int(version[1]) >= 9:
            found.setdefault(f"3.{version[1]}", path)
    return found


@pytest.mark.parametrize(("version", "path"), sorted(interpreters().items()))
def test_it_works_in_each_python(version: str, path: str, redis_server: Redis, namespace: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCES), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [path, "-c", SMOKE, redis_server.url, namespace]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert ended.stderr == ""
    assert ended.stdout == f"{version} there is no rule `nobody`\n"
