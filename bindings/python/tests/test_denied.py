"""Answers of the application to denied requests."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.testclient import TestClient
from flask import Flask
from flask import Response as FlaskResponse
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from werkzeug.test import Client
from werkzeug.wrappers import Response as WerkzeugResponse

from tollkeeper import ConfigError, ManualClock, UsageError, Verdict
from tollkeeper.asgi import RateLimitMiddleware as AsgiLimit
from tollkeeper.fastapi import Limits as FastApiLimits
from tollkeeper.fastapi import RateLimitExceeded
from tollkeeper.flask import Limits as FlaskLimits
from tollkeeper.wsgi import RateLimitMiddleware as WsgiLimit


def words(_request: Any, verdict: Verdict) -> str:
    assert not verdict.allowed and verdict.retry_after is not None
    return f"slow down: {verdict.limiting}"


def is_a_denial(answer: Any, text: str, status: int = 429) -> None:
    assert (answer.status_code, answer.text) == (status, text)
    headers = answer.headers
    assert int(headers["retry-after"]) > 0 and headers["ratelimit"].count("r=0") == 1 and headers["cache-control"] == "no-store", headers


def asgi(on_denied: Any, **options: Any) -> TestClient:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse("in")(scope, receive, send)

    return TestClient(AsgiLimit(app, limit="1/h", on_denied=on_denied, **options))


def test_asgi() -> None:
    async def later(scope: Any, verdict: Verdict) -> Response:
        return PlainTextResponse(words(scope, verdict), 503)

    client = asgi(lambda scope, verdict: PlainTextResponse(words(scope, verdict)))
    assert client.get("/").text == "in"
    is_a_denial(client.get("/"), "slow down: requests")
    client = asgi(later)
    client.get("/")
    is_a_denial(client.get("/"), "slow down: requests", 503)
    client = asgi(lambda scope, verdict: None)
    client.get("/")
    assert client.get("/").headers["content-type"] == "application/problem+json"


def test_headers_of_the_hook_stay() -> None:
    client = asgi(lambda scope, verdict: PlainTextResponse("no", headers={"Retry-After": "7", "RateLimit": "mine"}))
    client.get("/")
    denied = client.get("/")
    assert denied.headers.get_list("retry-after") == ["7"] and denied.headers.get_list("ratelimit") == ["mine"]
    assert denied.headers["ratelimit-policy"]


def test_a_hook_that_fails_lets_nobody_pass() -> None:
    def broken(*_: Any) -> Any:
        raise KeyError("broken")

    client = asgi(broken)
    client.get("/")
    with pytest.raises(KeyError):
        client.get("/")
    client = asgi(lambda scope, verdict: "a text is no application")
    client.get("/")
    with pytest.raises(TypeError):
        client.get("/")
    with pytest.raises(ConfigError, match="on_denied: must be a function"):
        asgi("a text")


def test_only_denials_are_for_the_hook() -> None:
    """A request that names its client twice has no verdict; whoever sends one must not cause an error."""
    asked: list[Any] = []
    client = asgi(lambda scope, verdict: asked.append(verdict), by="header.x-key")
    answer = client.get("/", headers=[("x-key", "a"), ("x-key", "b")])  # type: ignore[arg-type]
    assert answer.status_code == 400 and asked == []


def test_inside_of_another_layer_the_headers_are_those_of_both() -> None:
    app = Starlette()
    app.add_middleware(AsgiLimit, limit="1/h", name="inner", on_denied=lambda scope, verdict: PlainTextResponse("no"))
    app.add_middleware(AsgiLimit, limit="9/h", name="outer")
    client = TestClient(app)
    client.get("/")
    denied = client.get("/")
    assert (denied.status_code, denied.text) == (429, "no") and int(denied.headers["retry-after"]) > 0
    assert denied.headers["ratelimit-policy"] == '"outer";q=9;w=3600,"inner";q=1;w=3600'


def test_wsgi() -> None:
    def app(_environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [b"in"]

    def client(on_denied: Any) -> Client:
        made = Client(WsgiLimit(app, limit="1/h", by="global", on_denied=on_denied))
        assert made.get("/").text == "in"
        return made

    is_a_denial(client(lambda environ, verdict: WerkzeugResponse(words(environ, verdict))).get("/"), "slow down: requests")
    is_a_denial(client(lambda environ, verdict: WerkzeugResponse("x", 503)).get("/"), "x", 503)
    assert client(lambda environ, verdict: None).get("/").content_type == "application/problem+json"

    async def later(_environ: Any, _verdict: Verdict) -> Any:
        return None

    with pytest.raises(UsageError, match="on_denied: an async function"):
        client(later).get("/")


@pytest.mark.parametrize("is_async", [False, True])
def test_flask(is_async: bool) -> None:
    def client(on_denied: Any) -> Any:
        app, limit = Flask(__name__), FlaskLimits()
        app.testing = True

        def view() -> str:
            return "in"

        async def view_async() -> str:
            return "in"

        app.get("/")(limit("1/h", name="requests", on_denied=on_denied)(view_async if is_async else view))
        made = app.test_client()
        assert made.get("/").text == "in"
        return made

    is_a_denial(client(words).get("/"), "slow down: requests")
    is_a_denial(client(lambda request, verdict: ("x", 503, {"x-own": request.path})).get("/"), "x", 503)
    own = client(lambda request, verdict: ({"wait": verdict.retry_after}, {"Retry-After": "7", "RateLimit": "mine"})).get("/")
    assert own.status_code == 429 and own.json["wait"] > 0
    assert own.headers.getlist("retry-after") == ["7"] and own.headers.getlist("ratelimit") == ["mine"]
    assert client(lambda request, verdict: None).get("/").content_type == "application/problem+json"


def fastapi(limit: Any) -> TestClient:
    app = FastAPI()
    app.get("/", dependencies=[Depends(limit)])(lambda: "in")
    return TestClient(app)


def flask(limit: Any) -> Any:
    app = Flask(__name__)
    app.get("/")(limit(lambda: "in"))
    return app.test_client()


@pytest.mark.parametrize(
    ("client_of", "limits", "answer"), [(fastapi, FastApiLimits, PlainTextResponse("no")), (flask, FlaskLimits, FlaskResponse("no"))]
)
def test_one_response_for_all_denials(client_of: Any, limits: Any, answer: Any) -> None:
    """A response that is made once kept the headers of the first client who was denied, for all others."""
    clock = ManualClock()
    client = client_of(limits(clock=clock)("1/h", on_denied=lambda request, verdict: answer))
    client.get("/")
    waits = []
    for _ in range(2):
        denied = client.get("/")
        assert denied.status_code == 429
        waits.append((denied.headers["retry-after"], denied.headers["ratelimit"].split("t=")[1]))
        clock.advance(600)
    assert waits == [("3600", "3600"), ("3000", "3000")]


def test_the_answer_of_a_limit_is_not_that_of_its_status() -> None:
    """An application that has a page for every 429 got that page, and the limit's own answer was never shown."""
    app, limit = FastAPI(), FastApiLimits()
    app.get("/own", dependencies=[Depends(limit("1/h", on_denied=lambda *_: PlainTextResponse("own")))])(lambda: "in")
    app.get("/any", dependencies=[Depends(limit("1/h"))])(lambda: "in")
    app.exception_handler(429)(lambda request, error: PlainTextResponse("any", 429))
    client = TestClient(app)
    assert [(client.get(path), client.get(path).text)[1] for path in ["/own", "/any"]] == ["own", "any"]


@pytest.mark.parametrize("has_middleware", [False, True])
def test_fastapi(has_middleware: bool) -> None:
    limit = FastApiLimits()
    app = FastAPI()

    async def page(request: Request, verdict: Verdict) -> Response:
        assert request.url.path == "/page"
        return HTMLResponse(f"<p>{words(request, verdict)}")

    async def nothing() -> str:
        return "in"

    app.get("/page", dependencies=[Depends(limit("1/h", name="page", on_denied=page))])(nothing)
    hooks: list[Any] = [lambda request, verdict: JSONResponse({}, 503), lambda request, verdict: None, lambda request, verdict: {}]
    for index, hook in enumerate(hooks):
        app.get(f"/{index}", dependencies=[Depends(limit("1/h", on_denied=hook))])(nothing)
    # For limits without an answer of their own.
    app.exception_handler(RateLimitExceeded)(lambda request, error: PlainTextResponse("general", 418))
    if has_middleware:
        app.add_middleware(AsgiLimit, limit="100/h")
    client = TestClient(app)
    for path in ["/page", "/0", "/1", "/2"]:
        assert client.get(path).status_code == 200
    denied: httpx.Response = client.get("/page")
    assert (denied.status_code, denied.text) == (429, "<p>slow down: page")
    assert int(denied.headers["retry-after"]) > 0 and '"page";r=0' in denied.headers["ratelimit"]
    assert client.get("/0").status_code == 503 and client.get("/1").text == "general"
    with pytest.raises(UsageError, match="on_denied: must return a Response"):
        client.get("/2")
