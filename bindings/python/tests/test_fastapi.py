"""Limits on single routes of FastAPI, alone and under the middleware."""

import asyncio
from typing import Any, Optional

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, Header, Request, Response, WebSocket
from fastapi.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from tollkeeper import ConfigError, RuleError, UsageError
from tollkeeper.asgi import RateLimitMiddleware
from tollkeeper.fastapi import Limits, RateLimitExceeded


def test_a_route_is_limited_and_says_so() -> None:
    app, limit = FastAPI(), Limits()

    @app.post("/login", dependencies=[Depends(limit("2/min burst 1", by="ip"))])
    async def login() -> dict[str, bool]:
        return {"ok": True}

    @app.get("/open")
    async def open_to_all() -> str:
        return "open"

    client = TestClient(app)
    passed = client.post("/login")
    assert passed.status_code == 200
    assert passed.headers["ratelimit-policy"] == '"POST:/login:2/min-burst-1";q=1;w=30'
    denied = client.post("/login")
    assert denied.status_code == 429 and denied.headers["content-type"] == "application/problem+json"
    assert denied.headers["retry-after"] == "30" and "ratelimit" in denied.headers
    assert denied.json()["violated-policies"] == ["POST:/login:2/min-burst-1"]
    assert "ratelimit" not in client.get("/open").headers


def test_openapi_describes_the_429_of_limited_routes_only() -> None:
    app, limit = FastAPI(), Limits()

    @app.get("/direct", dependencies=[Depends(limit("5/min"))])
    async def direct() -> str:
        return ""

    def outer(_: Any = Depends(limit("5/min"))) -> None:
        return None

    @app.get("/nested")
    async def nested(_: Any = Depends(outer)) -> str:
        return ""

    @app.get("/own", dependencies=[Depends(limit("5/min"))], responses={429: {"description": "mine"}})
    async def own() -> str:
        return ""

    @app.get("/open")
    async def open_to_all() -> str:
        return ""

    paths = app.openapi()["paths"]
    for path in ("/direct", "/nested"):
        described = paths[path]["get"]["responses"]["429"]
        assert "application/problem+json" in described["content"] and "Retry-After" in described["headers"]
    assert paths["/own"]["get"]["responses"]["429"]["description"] == "mine"
    assert "429" not in paths["/open"]["get"]["responses"]


def test_routes_count_for_themselves_unless_they_share_a_name() -> None:
    app, limit = FastAPI(), Limits()
    shared = limit("1/min", name="shared")
    for path in ("/a", "/b"):
        app.get(path, dependencies=[Depends(limit("1/min"))])(lambda: "ok")
    for path in ("/c", "/d"):
        app.get(path, dependencies=[Depends(shared)])(lambda: "ok")
    app.get("/items/{item}", dependencies=[Depends(limit("1/min"))])(lambda item: item)
    client = TestClient(app)
    assert [client.get(path).status_code for path in ("/a", "/b", "/a")] == [200, 200, 429]
    assert [client.get(path).status_code for path in ("/c", "/d")] == [200, 429]
    assert [client.get(path).status_code for path in ("/items/1", "/items/2")] == [200, 429]


def test_the_path_of_a_mount_chooses_no_other_count() -> None:
    """An application that is mounted at a parameter had a count for each value that clients wrote there."""
    inner, outer, limit = FastAPI(), FastAPI(), Limits()

    @inner.post("/login/{user}", dependencies=[Depends(limit("2/min", by="ip"))])
    async def login(user: str) -> str:
        return user

    outer.mount("/api/{tenant}", inner)
    client = TestClient(outer)
    paths = ["/api/a/login/u", "/api/api/login/u", "/api/c/login/v", "/api/login/login/w"]
    answers = [client.post(path) for path in paths]
    assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
    assert answers[0].headers["ratelimit-policy"].startswith('"POST:/api/tenant/login/user:2/min"')


def test_each_route_of_included_routers_has_its_own_count() -> None:
    """FastAPI no longer writes the prefix into the routes of a router: those of the same path had one count, and failed if their limits
    were by different attributes."""
    app, limit = FastAPI(), Limits()

    async def chat(socket: WebSocket) -> None:
        await socket.accept()

    for prefix, by in [("/a", "ip"), ("/b", "ip"), ("/c/{tenant}", "header.x-key|ip")]:
        router = APIRouter()
        router.get("/login", dependencies=[Depends(limit("1/min", by=by))])(lambda: "in")
        router.websocket("/chat", dependencies=[Depends(limit("1/min"))])(chat)
        app.include_router(router, prefix=prefix)
    client = TestClient(app)
    assert [client.get(f"{prefix}/login").status_code for prefix in ["/a", "/b", "/c/x", "/c/y", "/a"]] == [200, 200, 200, 429, 429]
    for prefix in ["/a", "/b"]:
        with client.websocket_connect(f"{prefix}/chat"):
            pass
    assert {f"GET:{prefix}/login:1/min" for prefix in ["/a", "/b", "/c/tenant"]} <= {rule["name"] for rule in limit.limiter.rules}
    assert all("429" in operations["get"]["responses"] for operations in client.get("/openapi.json").json()["paths"].values())


@pytest.mark.parametrize(("mounted", "values"), [("/n/{number:int}", ["7", "07", "007"]), ("/u/{user}", ["a", "b", "c"])])
def test_no_way_to_write_a_mount_has_its_own_count(mounted: str, values: list[str]) -> None:
    """Values that are not written as they are understood (7, 07), and those of a mount whose parameter has the name of one of the route,
    were not recognized: a client that changed them had no limit, and each took memory for good."""
    inner, between, outer, limit = FastAPI(), FastAPI(), FastAPI(), Limits()
    inner.get("/items/{user}", dependencies=[Depends(limit("1/min", by="ip"))])(lambda user: user)
    between.mount("/v1", inner)
    outer.mount(mounted, between)
    client = TestClient(outer)
    codes = [client.get(mounted.partition("{")[0] + f"{value}/v1/items/x").status_code for value in values]
    assert codes == [200, 429, 429] and len(limit.limiter.rules) == 1


def test_keys_by_dependency_function_and_header() -> None:
    app, limit = FastAPI(), Limits()
    asked = []

    async def current_user(x_user: Optional[str] = Header(None)) -> Optional[dict[str, str]]:
        asked.append(x_user)
        return {"id": x_user} if x_user else None

    @app.get("/dependency", dependencies=[Depends(limit("1/min", by=current_user))])
    async def dependency(user: Any = Depends(current_user)) -> Any:
        return user

    app.get("/function", dependencies=[Depends(limit("1/min", by=lambda request: request.headers.get("x-user")))])(lambda: "")
    app.get("/header", dependencies=[Depends(limit("1/min", by="header.x-user|ip"))])(lambda: "")
    client = TestClient(app)
    for path in ("/dependency", "/function", "/header"):
        codes = [client.get(path, headers={"x-user": user}).status_code for user in ("a", "b", "a")]
        assert codes == [200, 200, 429], path
    assert asked == ["a", "b", "a"], "FastAPI asks a dependency once in a request"


def test_by_user() -> None:
    app, limit = FastAPI(), Limits()

    @app.middleware("http")
    async def authenticate(request: Request, call_next: Any) -> Any:
        request.state.user = request.headers.get("x-user")
        return await call_next(request)

    app.get("/", dependencies=[Depends(limit("1/min", by="user|ip"))])(lambda: "")
    client = TestClient(app)
    assert [client.get("/", headers={"x-user": user}).status_code for user in "aba"] == [200, 200, 429]
    assert [client.get("/").status_code for _ in range(2)] == [200, 429], "nobody is counted by address"
    bare = FastAPI()
    bare.get("/", dependencies=[Depends(limit("1/min", by="user"))])(lambda: "")
    with pytest.raises(UsageError, match="nobody has said who that is: give by= the dependency that authenticates"):
        TestClient(bare).get("/")


def test_middleware_and_route_tell_both_limits() -> None:
    app, limit = FastAPI(), Limits()
    app.add_middleware(RateLimitMiddleware, limit="10/min", name="app")

    @app.get("/own", dependencies=[Depends(limit("2/min", name="route")), Depends(limit("9/h", name="hour"))])
    async def own() -> Response:
        return Response("a response of its own", headers={"x-own": "1"})

    client = TestClient(app)
    passed = client.get("/own")
    assert passed.headers["ratelimit-policy"] == '"app";q=10;w=60,"route";q=2;w=60,"hour";q=9;w=3600'
    assert passed.headers["x-own"] == "1"
    client.get("/own")
    denied = client.get("/own")
    assert denied.status_code == 429 and denied.json()["violated-policies"] == ["route"]
    assert denied.headers["ratelimit"].startswith('"app";r=7') and '"route";r=0' in denied.headers["ratelimit"]
    assert denied.headers["retry-after"] == "30"


def test_an_application_may_answer_in_its_own_way() -> None:
    app, limit = FastAPI(), Limits()

    @app.exception_handler(RateLimitExceeded)
    async def too_many(_request: Request, error: RateLimitExceeded) -> Response:
        return Response("slow down", status_code=error.status_code, headers=error.headers)

    app.get("/", dependencies=[Depends(limit("1/min"))])(lambda: "")
    client = TestClient(app)
    client.get("/")
    denied = client.get("/")
    assert (denied.status_code, denied.text, denied.headers["retry-after"]) == (429, "slow down", "60")


@pytest.mark.parametrize("by", ["ip", "dependency"])
def test_slots_of_a_route_are_held_while_it_runs(by: str) -> None:
    """The slot was released as soon as the dependency had decided, so the limit never denied anybody."""
    app, limit = FastAPI(), Limits()
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def everybody() -> str:
        return "all"

    slots = limit("1 algorithm concurrency hold 60s", by=everybody if by == "dependency" else by)

    @app.get("/slow", dependencies=[Depends(slots)])
    async def slow() -> str:
        entered.set()
        await go_on.wait()
        return "done"

    async def main() -> None:
        transport = httpx.ASGITransport(app, client=("203.0.113.7", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            first = asyncio.create_task(client.get("/slow"))
            await entered.wait()
            assert (await client.get("/slow")).status_code == 429
            go_on.set()
            assert (await first).status_code == 200
            assert (await client.get("/slow")).status_code == 200

    asyncio.run(main())
    assert "429" in app.openapi()["paths"]["/slow"]["get"]["responses"]


def test_costs_of_a_route_may_be_async() -> None:
    app, limit = FastAPI(), Limits()

    async def price(request: Any) -> int:
        return int(request.headers["x-price"])

    app.get("/", dependencies=[Depends(limit("10/min", cost=price))])(lambda: "")
    client = TestClient(app)
    assert [client.get("/", headers={"x-price": "6"}).status_code for _ in range(2)] == [200, 429]


def test_websocket_routes() -> None:
    app, limit = FastAPI(), Limits()

    @app.websocket("/ws")
    async def socket(websocket: WebSocket, _: Any = Depends(limit("1/min"))) -> None:
        await websocket.accept()
        await websocket.close()

    client = TestClient(app)
    with client.websocket_connect("/ws"):
        pass
    with pytest.raises(WebSocketDisconnect) as closed, client.websocket_connect("/ws"):
        pass
    assert closed.value.code == 1013


def test_mistakes_are_named_when_the_route_is_made() -> None:
    with pytest.raises(RuleError, match="not a unit of time"):
        Limits()("5/fortnight")
    with pytest.raises(ConfigError, match="by: no request has 'session'"):
        Limits()("5/min", by="session")
    with pytest.raises(ConfigError, match="is not a store"):
        Limits(store="reddis://127.0.0.1")
    with pytest.raises(TypeError, match="stroe"):
        Limits(stroe="memory:")
