"""Who is not limited, and limits that differ by what the application knows of a client."""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Redis
from fastapi import Depends, FastAPI, Request, Response
from fastapi.testclient import TestClient
from flask import Blueprint, Flask
from flask.views import MethodView
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from tollkeeper import ConfigError, Limiter, ManualClock, TollkeeperWarning, UsageError, fastapi, flask
from tollkeeper.asgi import RateLimitMiddleware
from tollkeeper.wsgi import RateLimitMiddleware as WsgiMiddleware


async def home(_request: Any) -> PlainTextResponse:
    return PlainTextResponse("home")


def starlette(**settings: Any) -> TestClient:
    app = Starlette(routes=[Route("/{path:path}", home)])
    app.add_middleware(RateLimitMiddleware, **settings)
    return TestClient(app)


def codes(client: Any, paths: list[str], **given: Any) -> list[int]:
    return [client.get(path, **given).status_code for path in paths]


def test_all_that_is_below_a_path() -> None:
    """`exempt=["/static/*"]` was taken for a path with a star in its name, so everything below it was limited."""
    client = starlette(limit="1/min", exempt=["/static/*", "/healthz"])
    assert codes(client, ["/static/a.js", "/static/b/c.css", "/healthz", "/healthz"]) == [200] * 4
    assert codes(client, ["/static", "/healthz/deep", "/staticky"]) == [200, 429, 429]
    app = Flask(__name__)
    app.get("/<path:path>")(lambda path: path)
    app.wsgi_app = WsgiMiddleware(app.wsgi_app, limit="1/min", exempt=["/static/*"])  # type: ignore[method-assign]
    assert codes(app.test_client(), ["/static/a", "/static/b", "/other", "/other"]) == [404, 404, 200, 429]
    for path in ("*.js", "/static*", "/a/*/b", "/a/*/*"):
        with pytest.raises(ConfigError, match="is supported, as in '/static/"):
            starlette(limit="1/min", exempt=[path]).get("/")


def is_reading(request: Any) -> bool:
    return bool(request.method == "GET")


async def is_reading_later(request: Any) -> bool:
    await asyncio.sleep(0)
    return is_reading(request)


@pytest.mark.parametrize("exempt", [is_reading, is_reading_later])
@pytest.mark.parametrize("by", [None, "dependency", lambda request: "a"])
def test_a_route_of_fastapi_is_limited_for_some_requests_only(exempt: Any, by: Any) -> None:
    """Only the middleware had `exempt`: on a route, a key function had to find the client's address itself to leave somebody out."""
    app, limit = FastAPI(), fastapi.Limits()

    async def everybody() -> str:
        return "all"

    limited = Depends(limit("1 algorithm concurrency" if by is None else "1/min", by=everybody if by == "dependency" else by, exempt=exempt))
    app.get("/", dependencies=[limited])(lambda: "ok")
    limited = Depends(limit("1/min", by=everybody if by == "dependency" else by, exempt=exempt))
    app.api_route("/form", methods=["GET", "POST"], dependencies=[limited])(lambda: "ok")
    client = TestClient(app)
    assert codes(client, ["/", "/", "/form", "/form"]) == [200] * 4
    assert [client.post("/form").status_code for _ in range(2)] == [200, 429]
    assert client.get("/form").status_code == 200


def test_a_view_of_flask_is_limited_for_some_requests_only() -> None:
    app, limit = Flask(__name__), flask.Limits()
    app.testing = True

    @app.route("/form", methods=["GET", "POST"])
    @limit("1/min", exempt=is_reading)
    def form() -> str:
        return "ok"

    @app.route("/later", methods=["GET", "POST"])
    @limit("1/min", exempt=is_reading_later)
    async def later() -> str:
        return "ok"

    @app.route("/broken")
    @limit("1/min", exempt=is_reading_later)
    def broken() -> str:
        return "ok"

    class Views(MethodView):
        decorators = [limit("1/min", exempt=is_reading)]

        def get(self) -> str:
            return "read"

        def post(self) -> str:
            return "written"

    app.add_url_rule("/class", view_func=Views.as_view("class"))
    client = app.test_client()
    for path in ("/form", "/later", "/class"):
        assert codes(client, [path, path]) == [200, 200]
        assert [client.post(path).status_code for _ in range(2)] == [200, 429]
    with pytest.raises(UsageError, match="exempt: an async function needs an async view"):
        client.get("/broken")
    with pytest.raises(ConfigError, match="exempt: must be a function"):
        limit("1/min", exempt="/form")  # type: ignore[arg-type]


@pytest.fixture
def limit_of_the_module() -> Iterator[fastapi.Limits]:
    yield fastapi.limit
    fastapi.limit.enabled = True


def test_tests_of_an_application_can_turn_its_limits_off(limit_of_the_module: fastapi.Limits) -> None:
    """The sixth test that logged in got a 429, and nothing turned the limits of routes off."""
    app = FastAPI()
    app.post("/login", dependencies=[Depends(fastapi.limit("1/min", by="ip"))])(lambda: "ok")
    app.post("/none", dependencies=[Depends(fastapi.Limits(enabled=False)("1/min"))])(lambda: "ok")
    client = TestClient(app)
    limit_of_the_module.enabled = False
    assert [client.post("/login").status_code for _ in range(3)] == [200] * 3
    limit_of_the_module.enabled = True
    assert [client.post("/login").status_code for _ in range(2)] == [200, 429]
    assert [client.post("/none").status_code for _ in range(2)] == [200] * 2
    site, limit = Flask(__name__), flask.Limits()
    site.get("/")(limit("1/min")(lambda: "home"))
    limit.enabled = False
    assert codes(site.test_client(), ["/", "/"]) == [200, 200]
    limit.enabled = True
    assert codes(site.test_client(), ["/", "/"]) == [200, 429]


def test_tests_of_an_application_can_move_its_clock() -> None:
    """The middleware took no `clock`, so a test had to wait for a minute to pass."""
    clock = ManualClock()
    client = starlette(limit="1/min", clock=clock)
    assert codes(client, ["/", "/"]) == [200, 429]
    clock.advance(60)
    assert codes(client, ["/"]) == [200]


PLANS = [
    {"name": "free", "when": {"plan": "free"}, "key": "{customer}", "limit": "1/min"},
    {"name": "pro", "when": {"plan": "pro"}, "key": "{customer}", "limit": "3/min"},
]
CUSTOMERS = {"a": "free", "b": "pro"}


def plan_of(headers: Any) -> dict[str, Any]:
    return {"customer": headers.get("x-key"), "plan": CUSTOMERS.get(headers.get("x-key"))}


def test_limits_by_plan() -> None:
    """Rules `when: { plan: pro }` were for callers of `check`: the middleware could only be told a key, so limits that differ by
    customer needed a middleware by hand."""

    async def later(scope: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        return plan_of(Request(scope).headers)

    for attributes in (later, lambda scope: plan_of(Request(scope).headers)):
        client = starlette(limiter=Limiter.from_rules(PLANS), attributes=attributes)
        for key, passed in (("a", 1), ("b", 3)):
            found = codes(client, ["/"] * 4, headers={"x-key": key})
            assert found == [200] * passed + [429] * (4 - passed)
        assert codes(client, ["/"] * 4) == [200] * 4, "no rule applies"
    app = Flask(__name__)
    app.get("/")(lambda: "home")
    limiter = Limiter.from_rules(PLANS)
    app.wsgi_app = WsgiMiddleware(  # type: ignore[method-assign]
        app.wsgi_app, limiter=limiter, attributes=lambda environ: plan_of({"x-key": environ.get("HTTP_X_KEY")})
    )
    assert codes(app.test_client(), ["/", "/"], headers={"x-key": "a"}) == [200, 429]


def test_the_application_may_say_who_the_user_is() -> None:
    limiter = Limiter.from_rules([{"name": "all", "key": "{user}", "limit": "1/min"}])
    client = starlette(limiter=limiter, attributes=lambda scope: {"user": Request(scope).headers["x-key"]})
    assert [client.get("/", headers={"x-key": key}).status_code for key in "aba"] == [200, 200, 429]


def test_mistakes_are_named() -> None:
    limiter = Limiter.from_rules(PLANS)
    with pytest.raises(UsageError, match="attributes: only for rules; pass limiter= instead of a limit"):
        starlette(limit="1/min", attributes=lambda scope: {}).get("/")
    with pytest.raises(ConfigError, match="attributes: must be a function"):
        starlette(limiter=limiter, attributes={"plan": "pro"}).get("/")
    with pytest.raises(UsageError, match="attributes: must return a mapping such as .*, not 'pro'"):
        starlette(limiter=limiter, attributes=lambda scope: "pro").get("/")
    with pytest.raises(ConfigError, match="limit: cannot be a function; write a rule for each limit"):
        fastapi.Limits()(lambda request: "1/min")  # type: ignore[arg-type]


def test_a_count_is_reset_by_name_before_the_first_request() -> None:
    """A process that had not yet seen a request of the route knew no rule of that name, so only some workers could reset a count."""
    limit = fastapi.Limits()
    app = FastAPI()
    app.post("/login", dependencies=[Depends(limit("1/min", by="ip", name="login"))])(lambda: "ok")

    @app.post("/unlock")
    async def unlock() -> bool:
        return await limit.limiter.reset("login", "testclient")

    client = TestClient(app)
    assert client.post("/unlock").json() is False
    assert [client.post("/login").status_code for _ in range(2)] == [200, 429]
    assert client.post("/unlock").json() is True
    assert client.post("/login").status_code == 200
    with pytest.raises(UsageError, match="two different limits are called 'login'"):
        limit("2/min", by="ip", name="login")


def test_each_route_of_an_application_and_single_routes_of_starlette() -> None:
    """What slowapi's default limits do, and what its decorators do in Starlette."""
    app = FastAPI(dependencies=[Depends(fastapi.Limits()("1/min"))])
    app.get("/a")(lambda: "a")
    app.get("/b")(lambda: Response("b"))
    assert codes(TestClient(app), ["/a", "/b", "/a", "/b"]) == [200, 200, 429, 429]
    limited = Middleware(RateLimitMiddleware, limit="1/min", name="login")
    client = TestClient(Starlette(routes=[Route("/login", home, middleware=[limited]), Route("/open", home)]))
    assert codes(client, ["/login", "/open", "/login", "/open"]) == [200, 200, 429, 200]
    mount = Mount("/v1", routes=[Route("/a", home), Route("/b", home)], middleware=[limited])
    client = TestClient(Starlette(routes=[mount, Route("/open", home)]))
    assert codes(client, ["/v1/a", "/v1/b", "/open", "/open"]) == [200, 429, 200, 200], "routes of a mount count together"


def test_a_limit_is_not_put_on_what_it_cannot_limit() -> None:
    """`limit("5/min")(blueprint)`, as in flask-limiter, limited nothing; `@limit("5/min")` on an endpoint of FastAPI, as in slowapi,
    failed without a word of what to write."""
    app, limit = Flask(__name__), flask.Limits()
    blueprint = Blueprint("api", __name__)
    with pytest.raises(UsageError, match="use blueprint.before_request"):
        limit("1/min")(blueprint)  # type: ignore[type-var]
    with pytest.raises(UsageError, match="decorates a view function, not <class .*MethodView"):
        limit("1/min")(MethodView)
    blueprint.before_request(limit("1/min", name="all")(lambda: None))
    for path in ("/a", "/b"):
        blueprint.get(path, endpoint=path[1:])(lambda: "ok")
    app.register_blueprint(blueprint)
    assert codes(app.test_client(), ["/a", "/b"]) == [200, 429]
    if sys.version_info >= (3, 10):
        for text in ("5/min", "5 algorithm concurrency"):
            with pytest.raises(TypeError, match=r"Depends\(limit\(...\)\)\(\)"):
                fastapi.Limits()(text)(home)


def test_limits_that_count_together_by_mistake_are_warned_of(redis_server: Redis, namespace: str) -> None:
    """The limit of an application and the one of a route were both called `requests`: on Redis they were one count, without a word."""
    shared = {"store": redis_server.url, "namespace": namespace}

    def application(_scope: Any, _receive: Any, _send: Any) -> Any:
        raise NotImplementedError

    def make(**settings: Any) -> RateLimitMiddleware:
        return RateLimitMiddleware(application, **settings)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept = [make(limit="9/min", **shared), make(limit="9/min", **shared), make(limit="5/min", name="login", **shared)]
        kept += [make(limit="5/min", store=redis_server.url, namespace=f"{namespace}-2"), make(limit="5/min"), make(limit="6/min")]
    with pytest.warns(TollkeeperWarning, match="two different limits on one store are called 'requests', so they share one count"):
        kept.append(make(limit="5/min", **shared))


def test_the_peer_of_a_unix_socket() -> None:
    """nginx in front of a Unix socket, as the guides of Flask, Django and gunicorn have it: the server tells no address, so each
    request failed, and no setting said that the peer is this machine."""
    settings: dict[str, Any] = {"trusted_proxies": ["127.0.0.1"]}

    def of_environ(environ: Any) -> str:
        return environ.get("REMOTE_ADDR") or "127.0.0.1"

    def of_scope(scope: Any) -> str | None:
        return None if scope["client"] else "127.0.0.1"

    app, limit = Flask(__name__), flask.Limits(address=of_environ, **settings)
    app.get("/")(limit("1/min")(lambda: "ok"))
    app.get("/all", endpoint="all")(lambda: "ok")
    app.wsgi_app = WsgiMiddleware(app.wsgi_app, limit="2/min", address=of_environ, **settings)  # type: ignore[method-assign]
    unix = {"environ_overrides": {"REMOTE_ADDR": ""}}
    for address in ("1.1.1.1", "2.2.2.2"):
        found = codes(app.test_client(), ["/", "/", "/all"], headers={"x-forwarded-for": address}, **unix)
        assert found == [200, 429, 429], "the middleware has counted both"

    api, routes = FastAPI(), fastapi.Limits(address=of_scope, **settings)
    api.get("/", dependencies=[Depends(routes("1/min"))])(lambda: "ok")
    api.add_middleware(RateLimitMiddleware, limit="3/min", address=of_scope, **settings)

    async def without_address(scope: Any, receive: Any, send: Any) -> None:
        await api({**scope, "client": None}, receive, send)

    for address in ("1.1.1.1", "2.2.2.2"):
        headers = {"x-forwarded-for": address}
        assert codes(TestClient(without_address), ["/", "/", "/no", "/no"], headers=headers) == [200, 429, 404, 429]
