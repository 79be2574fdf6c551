"""The ASGI middleware: bare, in Starlette, and in Litestar."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conftest import Redis

from tollkeeper import AddressError, ConfigError, Limiter, Quota, UsageError
from tollkeeper.asgi import RateLimitMiddleware, verdict_of


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-app", b"1")]})
    await send({"type": "http.response.body", "body": b"ok"})


def scope(**more: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "raw_path": b"/",
        "query_string": b"",
        "headers": [(b"host", b"example.org")],
        "client": ("203.0.113.7", 5000),
    }
    return {**base, **more}


async def call(middleware: Any, scope: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    await middleware(scope, receive, send)
    first = sent[0]
    headers = {name.decode(): value.decode() for name, value in first.get("headers", [])}
    return first.get("status", first.get("code", 0)), headers, b"".join(m.get("body", b"") for m in sent)


def statuses(middleware: Any, *scopes: dict[str, Any]) -> list[int]:
    async def main() -> list[int]:
        return [(await call(middleware, one))[0] for one in scopes]

    return asyncio.run(main())


def test_the_answer_of_a_denial() -> None:
    middleware = RateLimitMiddleware(app, limit="2/min burst 1")
    status, headers, body = asyncio.run(call(middleware, scope()))
    assert (status, body) == (200, b"ok")
    assert headers == {"x-app": "1", "ratelimit-policy": '"requests";q=1;w=30', "ratelimit": '"requests";r=0;t=30'}
    status, headers, body = asyncio.run(call(middleware, scope()))
    assert status == 429
    assert headers["retry-after"] == "30" and headers["content-type"] == "application/problem+json"
    assert headers["content-length"] == str(len(body)) and b'"violated-policies":["requests"]' in body
    assert "ratelimit" in headers and "x-app" not in headers


def test_applications_see_the_verdict_of_all_layers() -> None:
    seen: list[Any] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        verdict = verdict_of(scope)
        assert verdict is not None
        seen.append(([row.rule for row in verdict.rules], [(over.rule, over.over_by) for over in verdict.annotations]))
        await app(scope, receive, send)

    soft = Limiter.from_rules([{"name": "soft", "key": "{ip}", "limit": "1/h", "mode": "annotate"}])
    layered = RateLimitMiddleware(RateLimitMiddleware(inner, limiter=soft), limit="100/min")
    assert statuses(layered, scope(), scope()) == [200, 200]
    assert seen == [(["requests", "soft"], []), (["requests", "soft"], [("soft", 1)])]
    assert verdict_of(scope()) is None


def test_clients_are_told_apart_by_address_and_ipv6_network() -> None:
    middleware = RateLimitMiddleware(app, limit="1/min")
    one, other = scope(), scope(client=("203.0.113.8", 1))
    assert statuses(middleware, one, other, one) == [200, 200, 429]
    v6 = [scope(client=(f"2001:db8:1:2::{i}", 1)) for i in (1, 2)]
    assert statuses(middleware, *v6) == [200, 429]


def test_only_trusted_proxies_are_believed() -> None:
    middleware = RateLimitMiddleware(app, limit="1/min", trusted_proxies=["10.0.0.0/8"])
    spoof = [scope(headers=[(b"x-forwarded-for", f"1.1.1.{i}".encode())]) for i in range(2)]
    assert statuses(middleware, *spoof) == [200, 429]
    behind = [scope(client=("10.0.0.1", 1), headers=[(b"x-forwarded-for", f"1.1.1.{i}".encode())]) for i in (1, 2, 1)]
    assert statuses(middleware, *behind) == [200, 200, 429]


def test_by_header_or_address() -> None:
    middleware = RateLimitMiddleware(app, limit="1/min", by="header.x-api-key|ip")
    keyed = [scope(headers=[(b"x-api-key", key)]) for key in (b"a", b"b", b"a")]
    assert statuses(middleware, *keyed, scope(), scope()) == [200, 200, 429, 200, 429]
    twice = scope(headers=[(b"x-api-key", b"a"), (b"x-api-key", b"c")])
    assert statuses(middleware, twice) == [400], "who says two things about itself is refused"


def test_by_what_identify_names() -> None:
    middleware = RateLimitMiddleware(app, limit="1/min", by="tenant|ip", identify={"tenant": "header.x-tenant"})
    scopes = [scope(headers=[(b"x-tenant", name)]) for name in (b"a", b"b", b"a")]
    assert statuses(middleware, *scopes) == [200, 200, 429]


def test_key_functions_sync_and_async() -> None:
    async def tenant(scope: Any) -> Any:
        await asyncio.sleep(0)
        return dict(scope["headers"]).get(b"x-tenant")

    for by in (tenant, lambda scope: dict(scope["headers"]).get(b"x-tenant")):
        middleware = RateLimitMiddleware(app, limit="1/min", by=by)
        scopes = [scope(headers=[(b"x-tenant", name)]) for name in (b"a", b"b", b"a")]
        assert statuses(middleware, *scopes) == [200, 200, 429]
        assert statuses(middleware, scope(), scope()) == [200, 200], "None is not limited"


def test_by_user() -> None:
    middleware = RateLimitMiddleware(app, limit="1/min", by="user")

    class User:
        is_authenticated = True
        id = 7

    assert statuses(middleware, scope(user=User()), scope(user=User())) == [200, 429]
    with pytest.raises(UsageError, match="authenticates"):
        statuses(middleware, scope())


def test_without_an_address_it_fails_loudly() -> None:
    middleware = RateLimitMiddleware(app, limit="1/min")
    for client in (None, ("", 0)):
        with pytest.raises(AddressError, match="address"):
            statuses(middleware, scope(client=client))
    by_key = RateLimitMiddleware(app, limit="1/min", by="header.x-api-key|ip")
    assert statuses(by_key, scope(client=None, headers=[(b"x-api-key", b"a")])) == [200]


def test_paths_however_they_are_spelled() -> None:
    limiter = Limiter.from_rules([{"name": "login", "when": {"path": "/login"}, "key": "{ip}", "limit": "1/min"}])
    middleware = RateLimitMiddleware(app, limiter=limiter)
    spellings = [b"/login", b"/%6Cogin", b"//login", b"/x/../login", b"/login?a=1"]
    assert statuses(middleware, *(scope(raw_path=path) for path in spellings)) == [200, 429, 429, 429, 429]
    assert statuses(middleware, scope(raw_path=None, path="/login"), scope(raw_path=b"/other")) == [429, 200]


def test_exempt_cost_and_several_limits() -> None:
    middleware = RateLimitMiddleware(
        app, limit=["10/min burst 2", Quota.per_hour(3)], exempt=["/healthz"], cost=lambda scope: 2 if scope["path"] == "/big" else 1
    )
    assert statuses(middleware, *[scope(path="/healthz")] * 5) == [200] * 5
    assert statuses(middleware, scope(path="/big"), scope()) == [200, 429]
    _, headers, _ = asyncio.run(call(middleware, scope(client=("203.0.113.9", 1))))
    assert headers["ratelimit-policy"] == '"requests";q=2;w=12,"requests-2";q=3;w=3600'


def test_layers_tell_all_limits_once() -> None:
    inner = RateLimitMiddleware(app, limit="1/min", name="inner")
    outer = RateLimitMiddleware(inner, limit="5/min", name="outer")
    status, headers, _ = asyncio.run(call(outer, scope()))
    assert status == 200
    assert headers["ratelimit-policy"] == '"outer";q=5;w=60,"inner";q=1;w=60'
    status, headers, body = asyncio.run(call(outer, scope()))
    assert status == 429 and b'["inner"]' in body
    assert headers["ratelimit"].startswith('"outer";r=3') and '"inner";r=0' in headers["ratelimit"]
    old = RateLimitMiddleware(
        RateLimitMiddleware(app, limit="1/min", headers="x-ratelimit-delta"), limit="5/min", headers="x-ratelimit-delta"
    )
    _, headers, _ = asyncio.run(call(old, scope()))
    assert headers["x-ratelimit-limit"] == "1", "the one that binds"


def test_handshakes_are_limited() -> None:
    middleware = RateLimitMiddleware(app, limit="1/min")
    handshake = scope(type="websocket", extensions={})
    del handshake["method"]
    _, headers, _ = asyncio.run(call(middleware, dict(handshake)))
    assert "ratelimit" in headers
    code, _, _ = asyncio.run(call(middleware, dict(handshake)))
    assert code == 1013
    extended = {**handshake, "extensions": {"websocket.http.response": {}}}
    status, headers, body = asyncio.run(call(middleware, extended))
    assert status == 429 and "retry-after" in headers and body


def test_slots_are_held_while_a_response_is_sent() -> None:
    limiter = Limiter.from_rules([{"name": "one", "key": "{ip}", "limit": 1, "algorithm": "concurrency"}])

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await started.wait()
        await app(scope, receive, send)

    async def main() -> None:
        global started
        started = asyncio.Event()
        middleware = RateLimitMiddleware(slow, limiter=limiter)
        first = asyncio.create_task(call(middleware, scope()))
        await asyncio.sleep(0.01)
        assert (await call(middleware, scope()))[0] == 429
        started.set()
        assert (await first)[0] == 200
        assert (await call(middleware, scope()))[0] == 200

    asyncio.run(main())


def test_leaky_buckets_delay() -> None:
    async def main() -> None:
        middleware = RateLimitMiddleware(app, limit="20/s burst 5 algorithm leaky_bucket")
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert [(await call(middleware, scope()))[0] for _ in range(3)] == [200] * 3
        assert loop.time() - began >= 0.09

    asyncio.run(main())


def test_a_rule_answers_in_its_own_words() -> None:
    deny = {"status": 403, "content_type": "application/json", "body": '{"wait":${retry_after}}'}
    limiter = Limiter.from_rules([{"name": "own", "key": "{ip}", "limit": "1/min", "deny": deny}])
    middleware = RateLimitMiddleware(app, limiter=limiter)
    statuses(middleware, scope())
    status, headers, body = asyncio.run(call(middleware, scope()))
    assert (status, headers["content-type"], body) == (403, "application/json", b'{"wait":60}')


def test_exemptions_and_costs_may_be_async() -> None:
    """A coroutine is true, so an async exemption exempted everybody."""

    async def is_health(scope: Any) -> bool:
        await asyncio.sleep(0)
        return bool(scope["path"] == "/healthz")

    async def price(_scope: Any) -> int:
        await asyncio.sleep(0)
        return 2

    middleware = RateLimitMiddleware(app, limit="2/min", exempt=is_health, cost=price)
    assert statuses(middleware, scope(path="/healthz"), scope(path="/healthz"), scope(), scope()) == [200, 200, 200, 429]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"limit": 100}, "limit: must be a line .* not 100"),
        ({"limit": {"10/s": 1}}, "limit: must be a line"),
        ({"limit": "10/s", "by": 5}, 'by: must be an attribute such as "header.x-api-key|ip", or a function, not 5'),
        ({"limit": "10/s", "by": "session"}, "by: no request has 'session'; use ip, user, header.NAME"),
        ({"limit": "10/s by x-api-key|ip"}, "by: no request has 'x-api-key'"),
        ({"limit": "10/s", "exempt": "/healthz"}, r'exempt: must be a list of paths such as \["/healthz"\], or a function'),
        ({"limit": "10/s", "exempt": ["healthz"]}, "exempt: 'healthz': a path starts with a slash, as in '/healthz'"),
        ({"limit": "10/s", "exempt": None}, "exempt: must be a list of paths .* not None"),
        ({"limit": []}, "limit: the list is empty, so nobody would be limited; write for example"),
        ({"limit": iter([])}, "limit: the list is empty"),
        ({"limit": "10/s", "by": "header."}, "by: no request has 'header.'; use ip, user, header.NAME"),
        ({"limit": "10/s", "by": "header.x key|ip"}, "by: no request has 'header.x key'"),
        ({"limit": "10/s", "by": "ip|cookie."}, "by: no request has 'cookie.'"),
        ({"limit": "10/s", "by": "ip|"}, "by: no request has ''"),
        ({"limit": "10/s", "name": ""}, 'name: must be a text such as "login", not \'\''),
        ({"limiter": ["10/s by ip"]}, "limiter: must be made by Limiter.from_rules or Limiter.from_file, not"),
        ({"limit": "10/s", "cost": -1}, "cost: must be a whole number from 0 .* not -1"),
        ({"limit": "10/s", "cost": 1.5}, "cost: must be a whole number from 0 .* not 1.5"),
    ],
)
def test_settings_that_make_no_sense_are_named(settings: dict[str, Any], words: str) -> None:
    """An exempt path that was given as a text exempted `/`, one of its letters; and a limit by an attribute that no request has
    limited nobody. Neither did an empty list of limits, nor a header without a name."""
    with pytest.raises(ConfigError, match=words):
        RateLimitMiddleware(app, **settings)


def test_names_of_headers_may_have_capitals() -> None:
    limited = RateLimitMiddleware(app, limit="1/min", by="header.X-Api-Key")
    ann, bob = (scope(headers=[(b"x-api-key", key)]) for key in (b"ann", b"bob"))
    assert statuses(limited, ann, ann, bob) == [200, 429, 200]


def test_misuse_is_named() -> None:
    with pytest.raises(UsageError, match="either limit="):
        RateLimitMiddleware(app)
    with pytest.raises(UsageError, match="has its own"):
        RateLimitMiddleware(app, limiter=Limiter.from_rules([]), trusted_proxies=["10.0.0.1"])


def test_on_redis(redis_server: Redis, namespace: str) -> None:
    middleware = RateLimitMiddleware(app, limit="2/min", store=redis_server.url, namespace=namespace, timeout=5)
    assert statuses(middleware, scope(), scope(), scope()) == [200, 200, 429]


def test_starlette() -> None:
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route, WebSocketRoute
    from starlette.testclient import TestClient, WebSocketDenialResponse
    from starlette.websockets import WebSocket

    async def home(_request: Any) -> PlainTextResponse:
        return PlainTextResponse("home")

    async def socket(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.close()

    application = Starlette(routes=[Route("/", home), WebSocketRoute("/ws", socket)])
    application.add_middleware(RateLimitMiddleware, limit="2/min")
    with TestClient(application) as client:
        assert client.get("/").headers["ratelimit"] == '"requests";r=1;t=30'
        with client.websocket_connect("/ws"):
            pass
        assert client.get("/").status_code == 429
        with pytest.raises(WebSocketDenialResponse) as denial, client.websocket_connect("/ws"):
            pass
        assert denial.value.status_code == 429


def test_litestar() -> None:
    """Litestar makes its middleware once for each route, so a limit on all requests that was given to it counted each route apart."""
    from litestar import Litestar, get
    from litestar.middleware import DefineMiddleware
    from starlette.testclient import TestClient

    @get("/")
    async def home() -> str:
        return "home"

    @get("/login", middleware=[DefineMiddleware(RateLimitMiddleware, limit="1/min", name="login")])
    async def login() -> str:
        return "in"

    client = TestClient(RateLimitMiddleware(Litestar([home, login]), limit="3/min"), client=("1.1.1.1", 1))
    assert client.get("/login").headers["ratelimit-policy"] == '"requests";q=3;w=60,"login";q=1;w=60'
    assert client.get("/login").status_code == 429
    assert client.get("/").headers["ratelimit-policy"] == '"requests";q=3;w=60'
    denied = client.get("/")
    assert denied.status_code == 429 and denied.headers["retry-after"] == "20"
    shared = Limiter.from_rules(["3/min by ip"])
    application = Litestar([home, login], middleware=[DefineMiddleware(RateLimitMiddleware, limiter=shared)])
    client = TestClient(application, client=("1.1.1.1", 1))
    assert [client.get(path).status_code for path in ("/login", "/login", "/", "/")] == [200, 429, 200, 429]
