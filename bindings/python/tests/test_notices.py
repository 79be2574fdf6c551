"""What operators should know: settings that can be spoofed, proxies that are missing in trusted_proxies, stores that cannot be reached."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Postgres, Redis, free_port

from tollkeeper import Limiter, TollkeeperWarning, Verdict, keyed
from tollkeeper.asgi import RateLimitMiddleware as AsgiLimit
from tollkeeper.wsgi import RateLimitMiddleware as WsgiLimit


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def ask_asgi(limited: AsgiLimit, peer: str, **headers: str) -> None:
    fields = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "GET", "path": "/", "client": (peer, 1234), "headers": fields}

    async def send(message: Any) -> None:
        pass

    asyncio.run(limited(scope, None, send))  # type: ignore[arg-type]


def ask_wsgi(limited: WsgiLimit, peer: str, **headers: str) -> None:
    environ = {"REMOTE_ADDR": peer, "REQUEST_METHOD": "GET", "PATH_INFO": "/"}
    environ.update({f"HTTP_{name.upper()}": value for name, value in headers.items()})
    list(limited(environ, lambda *_: None))


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "tollkeeper"]


def test_a_proxy_that_is_not_trusted_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    expected = (
        "10.0.0.1 sends forwarding headers but is not in trusted_proxies, so `ip` is its own address for "
        "all of its requests; add it if it is your proxy"
    )
    with caplog.at_level(logging.WARNING):
        limited = AsgiLimit(app, limit="1000/min")
        for client in range(5):
            ask_asgi(limited, "10.0.0.1", x_forwarded_for=f"203.0.113.{client}")
        assert messages(caplog) == [expected]
        caplog.clear()
        of_wsgi = WsgiLimit(lambda environ, start: [], limit="1000/min")
        for client in range(5):
            ask_wsgi(of_wsgi, "10.0.0.1", x_real_ip=f"203.0.113.{client}")
        assert messages(caplog) == [expected]


def test_nothing_is_logged_where_nothing_is_wrong(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ask_asgi(AsgiLimit(app, limit="1000/min"), "203.0.113.7", accept="*/*")
        trusting = AsgiLimit(app, limit="1000/min", trusted_proxies=["10.0.0.0/8"])
        ask_asgi(trusting, "10.0.0.1", x_forwarded_for="203.0.113.7")
        ask_asgi(AsgiLimit(app, limit="1000/min", by="header.x-api-key"), "10.0.0.1", x_forwarded_for="203.0.113.7")
        # uvicorn has replaced the proxy's address by the client's, and left the header.
        ask_asgi(AsgiLimit(app, limit="1000/min"), "203.0.113.7", x_forwarded_for="203.0.113.7, 10.0.0.2")
        assert messages(caplog) == []


def test_headers_that_contradict_each_other_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    limited = AsgiLimit(app, limit="1000/min", trusted_proxies=["10.0.0.0/8"])
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            ask_asgi(limited, "10.0.0.1", x_forwarded_for="203.0.113.7", forwarded="for=6.6.6.6")
    (message,) = messages(caplog)
    assert "sends Forwarded and X-Forwarded-For, and they differ" in message


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"trusted_proxies": ["0.0.0.0/0"]}, r"trusted_proxies\[0\]: trusts everybody"),
        ({"client_address": "x-real-ip"}, "client_address: x-real-ip is ignored, because trusted_proxies is empty"),
        ({"ipv6_prefix": 128}, "ipv6_prefix: with 128 bits one subscriber"),
        ({"by": "header.x-forwarded-for"}, "`header.x-forwarded-for` is chosen by the client"),
    ],
)
def test_settings_that_can_be_spoofed_are_warned_of(settings: dict[str, Any], words: str) -> None:
    with pytest.warns(TollkeeperWarning, match=words):
        AsgiLimit(app, limit="100/min", **settings)


def test_a_file_is_warned_of_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "tollkeeper.yaml"
    path.write_text("rules:\n  - { name: a, key: '{header.user-agent}', limit: 1/s }\n")
    with pytest.warns(TollkeeperWarning, match=r"tollkeeper.yaml:2:.*is the same for everyone who uses the same program"):
        Limiter.from_file(path)


def test_usual_settings_cause_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AsgiLimit(app, limit="100/min burst 20", by="header.x-api-key|ip", trusted_proxies=["10.0.0.0/8", "127.0.0.1"])
        Limiter.from_rules([{"name": "a", "key": "{user_id}", "limit": "1/s"}, "10/min by ip"])


RULE = {"name": "per-user", "key": "{user}", "limit": "1000000/h"}


@pytest.fixture
def redis_with_password(own_redis: Redis) -> Redis:
    require_password(own_redis)
    return own_redis


def require_password(server: Redis) -> None:
    command = ["redis-cli", "-p", str(server.port), "config", "set", "requirepass", "secret"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=60)


@pytest.fixture
def event_loop_of_test() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def about(caplog: pytest.LogCaptureFixture, port: int) -> list[tuple[str, str]]:
    """What was logged about the server on this port."""
    records = [record for record in caplog.records if record.name == "tollkeeper" and f":{port}" in record.getMessage()]
    return [(record.levelname, record.getMessage()) for record in records]


@pytest.mark.parametrize("awaits", [False, True])
def test_an_outage_and_its_end_are_logged(
    redis_with_password: Redis,
    namespace: str,
    caplog: pytest.LogCaptureFixture,
    event_loop_of_test: asyncio.AbstractEventLoop,
    awaits: bool,
) -> None:
    """Limits silently became those of each process: nothing was logged when Redis could not be reached."""
    port = redis_with_password.port
    store = f"redis://default:secret@127.0.0.1:{port}"
    limiter = Limiter.from_rules([RULE], store=store, namespace=namespace, timeout=0.5)

    async def ask() -> Verdict:
        return await limiter.check({"user": "a"})

    def source() -> str:
        verdict = event_loop_of_test.run_until_complete(ask()) if awaits else limiter.check_sync({"user": "a"})
        return verdict.source

    def comes_to(wanted: str) -> None:
        end = time.monotonic() + 60
        while source() != wanted:
            assert time.monotonic() < end, f"no answer from {wanted}"
            time.sleep(0.05)

    caplog.set_level(logging.INFO, "tollkeeper")
    comes_to("store")
    assert about(caplog, port) == []
    redis_with_password.kill()
    comes_to("local")
    end = time.monotonic() + 2
    while time.monotonic() < end:
        assert source() == "local"
        time.sleep(0.001)
    begins, *more = about(caplog, port)
    assert begins[0] == "WARNING" and begins[1].startswith(f"the store at 127.0.0.1:{port} does not answer"), begins
    yet = f"cannot reach the store at 127.0.0.1:{port} yet: "
    assert len(more) <= 1 and all(level == "WARNING" and text.startswith(yet) for level, text in more), more
    redis_with_password.start()
    require_password(redis_with_password)
    end = time.monotonic() + 60
    while about(caplog, port)[-1] != ("INFO", f"the store at 127.0.0.1:{port} answers again; its circuit breaker is closed"):
        source()
        assert time.monotonic() < end, about(caplog, port)
        time.sleep(0.05)
    assert "secret" not in caplog.text


def test_a_store_that_is_unreachable_at_start_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """Every second another attempt fails, and a request may be the only one for a while."""
    port = free_port()
    limiter = Limiter.from_rules([RULE], store=f"redis://default:secret@127.0.0.1:{port}")
    caplog.set_level(logging.INFO, "tollkeeper")
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        assert limiter.check_sync({"user": "a"}).source == "local"
        time.sleep(0.01)
    ((level, text),) = about(caplog, port)
    assert level == "WARNING"
    assert text.startswith(f"cannot reach the store at redis://…@127.0.0.1:{port} yet: cannot connect: "), text
    assert "secret" not in caplog.text


def test_a_request_does_not_fail_because_logging_does() -> None:
    """A filter of the application that raises would have turned an outage of Redis into one of the application."""

    def fail(record: logging.LogRecord) -> bool:
        raise RuntimeError(record.getMessage())

    unraisable: list[str] = []
    logger, hook = logging.getLogger("tollkeeper"), sys.unraisablehook
    logger.addFilter(fail)
    sys.unraisablehook = lambda error: unraisable.append(str(error.exc_value))
    try:
        limiter = Limiter.from_rules([RULE], store=f"redis://127.0.0.1:{free_port()}")
        assert limiter.check_sync({"user": "a"}).source == "local"
    finally:
        sys.unraisablehook = hook
        logger.removeFilter(fail)
    assert any("cannot reach the store" in text for text in unraisable), unraisable


def test_nor_does_it_fail_because_a_proxy_cannot_be_reported() -> None:
    """What was found about proxies was logged without that care: the request that revealed one failed."""

    def fail(record: logging.LogRecord) -> bool:
        raise RuntimeError(record.getMessage())

    unraisable: list[str] = []
    logger, hook = logging.getLogger("tollkeeper"), sys.unraisablehook
    logger.addFilter(fail)
    sys.unraisablehook = lambda error: unraisable.append(str(error.exc_value))
    try:
        ask_asgi(AsgiLimit(app, limit="1000/min"), "10.0.0.1", x_forwarded_for="203.0.113.1")
    finally:
        sys.unraisablehook = hook
        logger.removeFilter(fail)
    assert len(unraisable) == 1 and "sends forwarding headers" in unraisable[0]


@pytest.mark.parametrize("awaits", [False, True])
def test_a_handler_may_ask_the_limiter(awaits: bool) -> None:
    """As one does that limits log lines, by the limiter whose outage is logged."""
    limiter = Limiter.from_rules([RULE], store=f"redis://127.0.0.1:{free_port()}")
    asked: list[str] = []

    def ask(_record: logging.LogRecord) -> bool:
        asked.append(limiter.check_sync({"user": "handler"}).source)
        return True

    logger = logging.getLogger("tollkeeper")
    logger.addFilter(ask)
    try:
        verdict = asyncio.run(checked(limiter)) if awaits else limiter.check_sync({"user": "a"})
    finally:
        logger.removeFilter(ask)
    assert verdict.source == "local" and asked == ["local"]


def test_many_limiters_on_a_server_that_is_unreachable_do_not_flood_the_log() -> None:
    """Each of them reported it once a minute: an application with a limiter for each tenant had thousands of lines."""
    code = f"""
import asyncio, logging, sys
from tollkeeper import Limiter
logging.basicConfig(stream=sys.stdout)
async def ask():
    limiter = Limiter.from_rules([{RULE!r}], store="redis://127.0.0.1:{free_port()}")
    assert (await limiter.check({{"user": "a"}})).source == "local"
async def main():
    for _ in range(6):
        await asyncio.gather(*(ask() for _ in range(15)))
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    lines = done.stdout.splitlines()
    # Sixty a minute, and the test may see two minutes.
    assert 60 <= len(lines) <= 120 and all("cannot reach the store" in line for line in lines), lines


def test_nothing_is_reported_while_the_interpreter_ends() -> None:
    """Whoever asks in a finalizer, as a pool does that is closed last, got a traceback: logging could no longer be imported."""
    code = f"""
import builtins, sys
from tollkeeper import Limiter
class Pool:
    def __init__(self):
        self.limiter = Limiter.from_rules([{RULE!r}], store="redis://127.0.0.1:{free_port()}")
    def __del__(self, write=sys.__stdout__.write):
        write(self.limiter.check_sync({{"user": "a"}}).source)
builtins.pool = Pool()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("local", "")


def test_a_forked_process_reports_its_own_outages(namespace: str) -> None:
    """A child has a copy of what its parent has not reported yet; both would have reported it."""
    code = f"""
import logging, os, sys
from tollkeeper import Limiter
logging.basicConfig(format="%(process)d %(message)s")
limiter = Limiter.from_rules([{RULE!r}], store="redis://127.0.0.1:{free_port()}")
limiter.check_sync({{"user": "a"}})
child = os.fork()
for _ in range(3):
    limiter.check_sync({{"user": "a"}})
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(os.getpid(), child)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    lines = [line for line in done.stderr.splitlines() if "cannot reach the store" in line]
    assert [line.split()[0] for line in lines] == done.stdout.split(), done.stderr


def test_rules_that_cannot_be_followed_are_logged(postgres: Postgres, caplog: pytest.LogCaptureFixture) -> None:
    """The last good rules stay in force, so that nothing else tells that changes no longer arrive."""
    Limiter.from_postgres(postgres.url).connect_sync()
    postgres.sql("insert into rate_limit_rule (name, key_pattern, rate, period) values ('per-user', '{user}', 1000000, '1 hour')")
    limiter = Limiter.from_postgres(postgres.url)
    limiter.connect_sync()
    caplog.set_level(logging.WARNING, "tollkeeper")
    caplog.clear()
    postgres.stop()
    end = time.monotonic() + 60
    while not (found := [text for text in messages(caplog) if "stays in force" in text]):
        assert limiter.check_sync({"user": "a"}).source == "store"
        assert time.monotonic() < end
        time.sleep(0.05)
    assert found[0].startswith("rules: ") and len(found) == 1, found


def test_in_memory_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A limiter that has no server has no outage to report, also not that of another limiter of its process."""
    on_redis = Limiter.from_rules([RULE], store=f"redis://127.0.0.1:{free_port()}")
    in_memory, quota = Limiter.from_rules([RULE]), keyed("1000000/h")
    caplog.set_level(logging.INFO, "tollkeeper")
    on_redis.check_sync({"user": "a"})
    caplog.clear()
    for _ in range(100):
        assert in_memory.check_sync({"user": "a"}).allowed and quota.check("a").allowed
        asyncio.run(checked(in_memory))
    assert messages(caplog) == []


async def checked(limiter: Limiter) -> Verdict:
    return await limiter.check({"user": "a"})
