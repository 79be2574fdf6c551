"""What operators should know: settings that can be spoofed, and proxies that are missing in trusted_proxies."""

from __future__ import annotations

import asyncio
import logging
import warnings
from pathlib import Path
from typing import Any

import pytest

from tollkeeper import Limiter, TollkeeperWarning
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
