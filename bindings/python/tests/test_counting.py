"""Requests that count, or do not, by their responses: charged first, and given back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from typing import Any

import httpx
import pytest
from conftest import Redis, free_port
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import JSONResponse
from fastapi.testclient import TestClient
from flask import Flask, abort
from starlette.applications import Starlette
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect
from werkzeug.test import Client

from tollkeeper import ConfigError, Limiter, UsageError
from tollkeeper.asgi import RateLimitMiddleware as AsgiLimit
from tollkeeper.asgi import ResponseHead
from tollkeeper.fastapi import CountingMiddleware
from tollkeeper.fastapi import Limits as FastApiLimits
from tollkeeper.flask import Limits as FlaskLimits
from tollkeeper.wsgi import RateLimitMiddleware as WsgiLimit

ALGORITHMS = ["token_bucket", "gcra", "fixed_window", "sliding_window_log", "sliding_window_counter"]


def failed(response: Any) -> bool:
    return bool(response.status_code >= 400)


async def login(request: Request) -> PlainTextResponse:
    password = request.query_params.get("password", "")
    if password == "raise":
        raise StarletteHTTPException(401)
    if password == "bug":
        raise RuntimeError("a bug")
    return PlainTextResponse(password, 200 if password == "right" else 401)


def starlette(**options: Any) -> TestClient:
    app = Starlette(routes=[Route("/login", login)])
    app.add_middleware(AsgiLimit, **{"limit": "3/h", "count_when": failed, **options})
    return TestClient(app, raise_server_exceptions=False)


def remaining(headers: Any) -> int:
    return int(headers["ratelimit"].split("r=")[1].split(";")[0])


def tries(client: Any, *passwords: str) -> list[int]:
    return [client.get(f"/login?password={password}").status_code for password in passwords]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("where", ["memory", "redis"])
def test_only_failures_count(algorithm: str, where: str, redis_server: Redis, namespace: str) -> None:
    store = {"store": redis_server.url, "namespace": namespace, "timeout": 5} if where == "redis" else {}
    client = starlette(limit=f"3/h algorithm {algorithm}", **store)
    assert tries(client, *["right"] * 5, "wrong", "right", "raise", "right", "bug", "right") == [200] * 5 + [401, 200, 401, 200, 500, 429]
    denied = client.get("/login?password=right")
    assert denied.status_code == 429 and int(denied.headers["retry-after"]) > 0


def test_headers_count_the_request_itself() -> None:
    """They are what was left when it was decided."""
    client = starlette()
    assert [remaining(client.get("/login?password=right").headers) for _ in range(3)] == [2, 2, 2]
    assert [remaining(client.get("/login?password=wrong").headers) for _ in range(2)] == [2, 1]


@pytest.mark.parametrize("where", ["memory", "redis"])
def test_many_at_the_same_time_do_not_pass_together(where: str, redis_server: Redis, namespace: str) -> None:
    """Counting failures after the fact lets as many guesses pass as fit before the first one has failed."""
    store = {"store": redis_server.url, "namespace": namespace, "timeout": 5} if where == "redis" else {}
    arrived, go = 0, asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal arrived
        arrived += 1
        await go.wait()
        await PlainTextResponse("no", 401)(scope, receive, send)

    limited = AsgiLimit(app, limit="5/h", count_when=failed, **store)  # type: ignore[arg-type]

    async def main() -> list[int]:
        transport = httpx.ASGITransport(limited, client=("192.0.2.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            attempts = [asyncio.ensure_future(client.get("/")) for _ in range(100)]
            done = 0
            while done < 95:
                await asyncio.sleep(0.01)
                done = sum(attempt.done() for attempt in attempts)
            assert arrived == 5
            go.set()
            return sorted(answer.status_code for answer in await asyncio.gather(*attempts))

    assert asyncio.run(main()) == [401] * 5 + [429] * 95


def test_whoever_goes_away_before_the_response_has_been_counted() -> None:
    """Otherwise a guess would cost nothing: close the connection before it fails."""
    started = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        started.set()
        await asyncio.sleep(60)

    limited = AsgiLimit(app, limit="1/h", count_when=lambda response: False)
    scope = {"type": "http", "method": "GET", "path": "/", "client": ("192.0.2.1", 1), "headers": []}
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def main() -> None:
        task = asyncio.ensure_future(limited(dict(scope), None, send))  # type: ignore[arg-type]
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await limited(dict(scope), None, send)  # type: ignore[arg-type]

    asyncio.run(main())
    assert sent[0]["status"] == 429


def test_a_store_that_goes_away_meanwhile_fails_no_request(own_redis: Redis, namespace: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        own_redis.kill()
        await PlainTextResponse("in")(scope, receive, send)

    limited = AsgiLimit(app, limit="5/h", count_when=failed, store=own_redis.url, namespace=namespace, timeout=0.5)
    assert TestClient(limited).get("/").text == "in"


def test_without_its_store_only_failures_count_too() -> None:
    """While Redis could not be reached each process counted all requests, and denied clients that made no mistake."""
    client = starlette(store=f"redis://127.0.0.1:{free_port()}")
    assert tries(client, *["right"] * 5, "wrong", "wrong", "right", "wrong", "right") == [200] * 5 + [401, 401, 200, 401, 429]


def test_functions_of_the_application() -> None:
    seen: list[ResponseHead] = []

    async def later(response: ResponseHead) -> bool:
        await asyncio.sleep(0)
        seen.append(response)
        return response.headers["content-type"].startswith("text/plain")

    client = starlette(limit="1/h", count_when=later)
    assert tries(client, "right", "right") == [200, 429] and len(seen) == 1, "a denied request is not charged"

    def fails(response: ResponseHead) -> bool:
        raise KeyError(response.status_code)

    client = starlette(limit="1/h", count_when=fails)
    assert tries(client, "right", "right") == [500, 429], "the request counts, and its error is seen"
    with pytest.raises(ConfigError, match="count_when: must be a function"):
        AsgiLimit(Starlette(), limit="1/h", count_when=401)  # type: ignore[arg-type]


def test_a_function_that_fails_is_not_the_fault_of_other_limits() -> None:
    """The functions of other limits were not asked any more, and so these counted every request."""
    asked: list[int] = []

    def fails(response: ResponseHead) -> bool:
        raise KeyError(response.status_code)

    def wrong(response: ResponseHead) -> bool:
        asked.append(response.status_code)
        return response.status_code == 401

    app = Starlette(routes=[Route("/login", login)])
    app.add_middleware(AsgiLimit, limit="1/h", name="wrong", count_when=wrong)
    app.add_middleware(AsgiLimit, limit="9/h", name="fails", count_when=fails)
    assert tries(TestClient(app, raise_server_exceptions=False), *["right"] * 3) == [500] * 3 and asked == [500] * 3


def test_headers_that_can_be_read_once_arrive() -> None:
    """ASGI takes any iterable of headers. Counting had read them, and the response had none."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": iter([(b"x-own", b"1")])})
        await send({"type": "http.response.body", "body": b""})

    client = TestClient(AsgiLimit(AsgiLimit(app, limit="9/h", count_when=failed), limit="9/h"))
    assert client.get("/").headers["x-own"] == "1"


def test_handshakes() -> None:
    async def chat(socket: WebSocket) -> None:
        if "refuse" in socket.query_params:
            await socket.close()
            return
        await socket.accept()
        await socket.close()

    app = Starlette(routes=[WebSocketRoute("/chat", chat)])
    app.add_middleware(AsgiLimit, limit="1/h", count_when=failed)
    client = TestClient(app)
    for _ in range(3):
        with client.websocket_connect("/chat"):
            pass
    for _ in range(2):
        with pytest.raises(WebSocketDisconnect), client.websocket_connect("/chat?refuse=1"):
            pass
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/chat"):
        pass


def test_slots_are_held_to_the_end() -> None:
    inside = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        inside.set()
        await asyncio.sleep(0.2)
        await send({"type": "http.response.body", "body": b""})

    rules = ["100/h by ip", {"name": "slots", "key": "{ip}", "limit": 1, "algorithm": "concurrency"}]
    limited = AsgiLimit(app, limiter=Limiter.from_rules(rules), count_when=failed)

    async def main() -> list[int]:
        transport = httpx.ASGITransport(limited, client=("192.0.2.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            first = asyncio.ensure_future(client.get("/"))
            await inside.wait()
            return [(await client.get("/")).status_code, (await first).status_code, (await client.get("/")).status_code]

    assert asyncio.run(main()) == [429, 200, 200]


def test_fastapi() -> None:
    limit = FastApiLimits()
    app = FastAPI()

    @app.get("/login", dependencies=[Depends(limit("2/h", count_when=failed))])
    async def log_in(password: str) -> Any:
        if password == "raise":
            raise HTTPException(401)
        return JSONResponse({}, 200 if password == "right" else 401)

    # In TestClient an error of the application is raised.
    with pytest.raises(UsageError, match="CountingMiddleware"):
        TestClient(app).get("/login?password=right")
    app = FastAPI(routes=app.routes)
    app.add_middleware(CountingMiddleware)
    client = TestClient(app)
    assert tries(client, "right", "right", "right", "wrong", "raise", "right") == [200, 200, 200, 401, 401, 429]


def test_fastapi_under_the_middleware() -> None:
    limit = FastApiLimits()
    app = FastAPI()

    @app.get("/login", dependencies=[Depends(limit("2/h", count_when=failed, name="failures"))])
    async def log_in(password: str) -> Any:
        return JSONResponse({}, 200 if password == "right" else 401)

    app.add_middleware(AsgiLimit, limit="4/h", count_when=lambda response: response.status_code < 400)
    client = TestClient(app)
    assert tries(client, "right", "wrong", "right", "wrong", "right") == [200, 401, 200, 401, 429]
    assert tries(client, "right", "right") == [429, 429]


def flask(**options: Any) -> Flask:
    app, limit = Flask(__name__), FlaskLimits()

    def log_in() -> Any:
        from flask import request

        password = request.args["password"]
        if password == "raise":
            abort(401)
        if password == "bug":
            raise RuntimeError("a bug")
        return password, 200 if password == "right" else 401

    async def log_in_async() -> Any:
        await asyncio.sleep(0)
        return log_in()

    given = {"count_when": failed, **options}
    app.get("/login")(limit("3/h", **given)(log_in))
    app.get("/async")(limit("3/h", **given)(log_in_async))
    return app


def test_flask() -> None:
    app = flask()
    assert tries(app.test_client(), *["right"] * 4, "wrong", "raise", "right", "bug", "right") == [200] * 4 + [401, 401, 200, 500, 429]
    codes = [app.test_client().get(f"/async?password={password}").status_code for password in ["right"] * 4 + ["wrong", "raise", "bug", "right"]]
    assert codes == [200] * 4 + [401, 401, 500, 429]

    async def later(_response: Any) -> bool:
        return True

    app = flask(count_when=later)
    app.testing = True
    with pytest.raises(UsageError, match="count_when: an async function needs"):
        tries(app.test_client(), "right")


def test_in_flask_too_a_request_counts_whose_function_fails() -> None:
    """Flask asked the function again, about the response to its own error."""

    def of_pages(response: Any) -> bool:
        if response.status_code == 500:
            return False
        raise KeyError(response.status_code)

    app = flask(count_when=of_pages)
    assert tries(app.test_client(), *["right"] * 4) == [500] * 3 + [429]


def test_wsgi() -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        password = environ["QUERY_STRING"].partition("=")[2]
        if password == "bug":
            raise RuntimeError("a bug")

        def body() -> Iterable[bytes]:
            start_response("200 OK" if password == "right" else "401 Unauthorized", [("content-type", "text/plain")])
            if password == "late":
                raise RuntimeError("a late bug")
            yield b""
            yield password.encode()

        return body()

    client = Client(WsgiLimit(app, limit="4/h", by="global", count_when=failed))
    for password, status in [("right", 200)] * 6 + [("wrong", 401)]:
        assert client.get(f"/?password={password}", buffered=True).status_code == status
    for password in ["bug", "late"]:
        with pytest.raises(RuntimeError):
            client.get(f"/?password={password}", buffered=True)
    assert [client.get(f"/?password={password}", buffered=True).status_code for password in ["right", "wrong", "right"]] == [200, 401, 429]


def test_wsgi_in_many_threads(redis_server: Redis, namespace: str) -> None:
    gate, arrived = threading.Event(), []

    def app(_environ: Any, start_response: Any) -> Iterable[bytes]:
        arrived.append(1)
        gate.wait(30)
        start_response("401 Unauthorized", [])
        return [b"no"]

    limited = WsgiLimit(app, limit="5/h", by="global", count_when=failed, store=redis_server.url, namespace=namespace, timeout=5)
    found: list[int] = []

    def ask() -> None:
        found.append(Client(limited).get("/").status_code)

    threads = [threading.Thread(target=ask) for _ in range(30)]
    for thread in threads:
        thread.start()
    while len(found) < 25:
        gate.wait(0.01)
    gate.set()
    for thread in threads:
        thread.join()
    assert sorted(found) == [401] * 5 + [429] * 25 and len(arrived) == 5


def test_a_response_without_a_body_and_one_that_nobody_reads() -> None:
    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("204 No Content", [])
        return [] if environ["PATH_INFO"] == "/empty" else iter([b"a", b"b"])

    client = Client(WsgiLimit(app, limit="1/h", by="global", count_when=failed))
    assert [client.get("/empty", buffered=True).status_code for _ in range(3)] == [204] * 3
    for _ in range(3):
        client.get("/unread", buffered=False).close()
    assert client.get("/empty", buffered=True).status_code == 204


def test_a_response_without_a_body_that_nobody_closes() -> None:
    """Much middleware reads a response and does not close it. Logins that redirect, without a body, were then counted as failures."""

    def app(_environ: Any, start_response: Any) -> list[bytes]:
        start_response("302 Found", [("location", "/")])
        return []

    limited = WsgiLimit(app, limit="1/h", by="global", count_when=failed)
    client = Client(lambda environ, start_response: [b"".join(limited(environ, start_response))])
    assert [client.get("/").status_code for _ in range(3)] == [302] * 3


def test_no_process_gives_back_what_another_was_charged(redis_server: Redis, namespace: str) -> None:
    """A process that is stopped leaves its requests counted."""
    options: Any = {"store": redis_server.url, "namespace": namespace, "timeout": 5}
    limiter = Limiter.from_rules(["2/h by ip"], **options)
    scope = {"type": "http", "client": ("192.0.2.1", 1)}

    async def charged() -> Any:
        answer: Any = limiter._check_asgi(scope, None, 1, True)
        return answer if hasattr(answer, "allowed") else await answer

    asyncio.run(charged())
    del limiter
    other = Limiter.from_rules(["2/h by ip"], **options)
    assert [other.check_sync({"ip": "192.0.2.1"}).allowed for _ in range(2)] == [True, False]
