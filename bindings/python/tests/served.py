"""Applications for test_servers.py. Each request that is served leaves one byte in a file, whatever process served it."""

from __future__ import annotations

import os
from typing import Any

from flask import Flask

from tollkeeper.asgi import RateLimitMiddleware as AsgiLimit
from tollkeeper.wsgi import RateLimitMiddleware as WsgiLimit

SETTINGS: dict[str, Any] = {
    "limit": f"{os.environ['LIMIT']}/day",
    "store": os.environ["STORE"],
    "namespace": os.environ["NAMESPACE"],
    "timeout": 5,
}


def serve() -> None:
    descriptor = os.open(os.environ["SERVED"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, b".")
    os.close(descriptor)


async def application(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": "hello"})
        await send({"type": "websocket.close"})
    elif scope["type"] == "http":
        serve()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})


asgi = AsgiLimit(application, **SETTINGS)

flask_app = Flask(__name__)


@flask_app.get("/")
def home() -> str:
    serve()
    return "ok"


_limited = WsgiLimit(flask_app.wsgi_app, **SETTINGS)
flask_app.wsgi_app = _limited  # type: ignore[method-assign]
wsgi = flask_app
if "CONNECT_FIRST" in os.environ:
    # What the parent of prefork workers has connected is not theirs.
    _limited.limiter.connect_sync()
