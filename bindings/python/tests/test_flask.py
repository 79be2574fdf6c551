"""The WSGI middleware and limits on single views of Flask."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from flask import Flask, g, request

from tollkeeper import AddressError, UsageError
from tollkeeper.flask import Limits, verdict_of
from tollkeeper.wsgi import RateLimitMiddleware


def application() -> Flask:
    app, limit = Flask(__name__), Limits()

    @app.get("/")
    def home() -> str:
        return "home"

    @app.post("/login")
    @limit("1/min", by="ip", name="login")
    def login() -> str:
        return "ok"

    @app.get("/key")
    @limit("1/min", by=lambda request: request.headers.get("x-user"))
    def key() -> str:
        return "ok"

    @app.get("/user")
    @limit("1/min", by="user")
    def user() -> str:
        return "ok"

    @app.get("/seen")
    @limit("5/min", name="seen")
    def seen() -> list[str]:
        verdict = verdict_of(request)
        return [row.rule for row in verdict.rules] if verdict is not None else []

    return app


def test_views_see_the_verdict_of_all_layers() -> None:
    app = application()
    app.wsgi_app = RateLimitMiddleware(app.wsgi_app, limit="100/min")  # type: ignore[method-assign]
    assert app.test_client().get("/seen").json == ["requests", "seen"]


def test_a_view_is_limited() -> None:
    client = application().test_client()
    assert client.post("/login").headers["RateLimit-Policy"] == '"login";q=1;w=60'
    denied = client.post("/login")
    assert denied.status_code == 429 and denied.content_type == "application/problem+json"
    assert denied.headers["Retry-After"] == "60" and denied.headers["RateLimit"].startswith('"login";r=0')
    assert "RateLimit" not in client.get("/").headers
    codes = [client.get("/key", headers={"x-user": name}).status_code for name in "aba"]
    assert codes == [200, 200, 429]


def test_the_method_and_the_path_choose_no_other_count() -> None:
    """`HEAD` had a count beside that of `GET`, and each path that is not found had one of its own: scanners met no limit."""
    app, limit = Flask(__name__), Limits()

    @app.route("/form", methods=["GET", "POST"])
    @limit("2/min")
    def form() -> str:
        return "ok"

    @app.errorhandler(404)
    @limit("2/min")
    def lost(_error: Exception) -> tuple[str, int]:
        return "lost", 404

    client = app.test_client()
    answers = [client.open("/form", method=method) for method in ("GET", "HEAD", "POST", "HEAD")]
    assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
    assert answers[0].headers["RateLimit-Policy"].startswith('"GET-POST:/form:2/min"')
    assert [client.get(f"/{number}").status_code for number in range(4)] == [404, 404, 429, 429]
    assert len(limit._rules) == 2


def test_by_user() -> None:
    app = application()
    app.testing = True
    with pytest.raises(UsageError, match="nobody has said"):
        app.test_client().get("/user")
    app = application()

    @app.before_request
    def authenticate() -> None:
        g.user = {"id": 7}

    assert [app.test_client().get("/user").status_code for _ in range(2)] == [200, 429]


def test_middleware_and_view_tell_both_limits() -> None:
    app = application()
    app.wsgi_app = RateLimitMiddleware(app.wsgi_app, limit="3/min", name="app")  # type: ignore[method-assign]
    client = app.test_client()
    assert client.post("/login").headers["RateLimit-Policy"] == '"app";q=3;w=60,"login";q=1;w=60'
    denied = client.post("/login")
    assert denied.status_code == 429 and denied.json["violated-policies"] == ["login"]  # type: ignore[index]
    assert client.get("/").status_code == 200
    denied = client.get("/")
    assert denied.status_code == 429 and denied.json["violated-policies"] == ["app"]  # type: ignore[index]
    assert denied.headers["Retry-After"] and denied.headers["Content-Length"]


def test_wsgi_identity() -> None:
    app = Flask(__name__)
    app.get("/")(lambda: "home")
    wsgi = RateLimitMiddleware(app.wsgi_app, limit="1/min", trusted_proxies=["10.0.0.1"], by="header.x-api-key|ip")
    app.wsgi_app = wsgi  # type: ignore[method-assign]
    client = app.test_client()

    def get(address: str | None, **headers: str) -> int:
        environ: dict[str, Any] = {"REMOTE_ADDR": address}
        return client.get("/", environ_overrides=environ, headers={k.replace("_", "-"): v for k, v in headers.items()}).status_code

    assert get("10.0.0.1", x_forwarded_for="1.1.1.1") == 200
    assert get("10.0.0.1", x_forwarded_for="1.1.1.2") == 200
    assert get("10.0.0.1", x_forwarded_for="1.1.1.1") == 429
    assert get("9.9.9.9", x_forwarded_for="1.1.1.3") == 200
    assert get("9.9.9.9", x_forwarded_for="1.1.1.4") == 429
    assert [get("9.9.9.9", x_api_key=key) for key in "aba"] == [200, 200, 429]
    with pytest.raises(AddressError):
        get("")


def test_async_views_and_key_functions() -> None:
    app, limit = Flask(__name__), Limits()
    app.testing = True

    async def tenant(request: Any) -> Any:
        await asyncio.sleep(0)
        return request.headers.get("x-tenant")

    async def price(_request: Any) -> int:
        return 2

    @app.get("/async")
    @limit("2/min", by=tenant, cost=price)
    async def by_tenant() -> str:
        await asyncio.sleep(0)
        return "ok"

    @app.get("/sync")
    @limit("1/min", by=tenant)
    def waits_for_nobody() -> str:
        return "ok"

    client = app.test_client()
    codes = [client.get("/async", headers={"x-tenant": name}).status_code for name in "aba"]
    assert codes == [200, 200, 429]
    with pytest.raises(UsageError, match="by: an async function needs an async view or ASGI"):
        client.get("/sync")
    app.wsgi_app = RateLimitMiddleware(app.wsgi_app, limit="1/min", exempt=tenant)  # type: ignore[method-assign]
    with pytest.raises(UsageError, match="exempt: an async function"):
        client.get("/async")


def test_exempt_and_errors_of_the_application() -> None:
    def broken(_environ: Any, _start: Any) -> Any:
        raise KeyError("broken")

    from werkzeug.test import Client

    wsgi = RateLimitMiddleware(broken, limit="1 algorithm concurrency", exempt=["/healthz"])
    client = Client(wsgi)
    for _ in range(3):
        with pytest.raises(KeyError):
            client.get("/", environ_overrides={"REMOTE_ADDR": "1.1.1.1"})
