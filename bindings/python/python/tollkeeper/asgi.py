"""Rate limiting for ASGI applications: Starlette, FastAPI, Litestar, Django and every other ASGI 3 application.

>>> app.add_middleware(RateLimitMiddleware, limit="100/min burst 20")

Denied requests get 429 with ``Retry-After``, the limit headers and a problem document, without reaching the application;
passed ones get the limit headers. WebSocket handshakes are limited too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any

from . import _denied
from ._awaited import awaited
from ._counting import COUNTING, Counting, ResponseHead
from ._errors import UsageError
from ._identity import addressed_scope, attributes_of, key_of, name_of
from ._middleware import LAYER, Middleware, verdict_of
from ._rules import KEY
from ._tollkeeper import Refusal, Sender, Verdict

__all__ = ["RateLimitMiddleware", "ResponseHead", "verdict_of"]

# Defined as in Starlette and others, so that type checkers accept either.
Scope = Any
Message = Any
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

#: "Try Again Later", for servers that cannot answer a handshake with a response.
TRY_AGAIN_LATER = 1013


class RateLimitMiddleware(Middleware[ASGIApp, Scope]):
    __doc__ = Middleware.__doc__
    _path = "path"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if (kind != "http" and kind != "websocket") or self._exempt is not None and await awaited(self._is_exempt(scope)):
            await self.app(scope, receive, send)
            return
        if self.limiter._lacks_rules():
            await self.limiter._follow()
        known = await self._known(scope) if self._asks or self.limiter._needs_user() else None
        cost = self._cost if isinstance(self._cost, int) else await awaited(self._cost_of(scope))
        count_when = self._count_when
        seen = scope if self._address is None else addressed_scope(scope, self._address)
        if count_when is None:
            answer = self.limiter._check_asgi(seen, known, cost)
        else:
            answer = self.limiter._check_asgi(seen, known, cost, True)
        verdict: Verdict | Refusal = answer if isinstance(answer, DECIDED) else await answer
        outer = scope.get(LAYER)
        if not verdict.allowed:
            await deny(verdict, scope, receive, send, outer, self._on_denied)
            return
        assert isinstance(verdict, Verdict)
        counting = None
        if count_when is not None:
            shown: Counting | None = scope.get(COUNTING)
            if shown is None:
                scope[COUNTING] = send = shown = counting = Counting(send)
            shown.add(verdict, count_when)
        if outer is None:
            scope[LAYER] = send = Sender(send, verdict)
        else:
            outer.add(verdict)
        try:
            delay = verdict.delay
            if delay:
                await asyncio.sleep(delay)
            await self.app(scope, receive, send)
        except Exception:
            if counting is not None:
                # What it becomes outside of this.
                await counting.decide(500)
            raise
        finally:
            verdict._release()

    async def _known(self, scope: Scope) -> dict[str, Any]:
        known = {} if self._attributes is None else attributes_of(await awaited(self._attributes(scope)))
        if self._key is not None:
            value = self._key(scope)
            known[KEY] = key_of(await value if isawaitable(value) else value)
        elif "user" not in known and self.limiter._needs_user():
            known["user"] = user_of(scope)
        return known


_ORDER = (
    "put RateLimitMiddleware inside of the middleware that authenticates (Starlette runs the one that was added last first), "
    "or give by= a function"
)


def user_of(scope: Scope, advice: str = _ORDER) -> str | None:
    """The user who is logged in, from the authentication middleware. Where nothing authenticates, the error gives this advice."""
    state = scope.get("state")
    user = scope.get("user", state.get("user", _NOBODY) if isinstance(state, dict) else _NOBODY)
    if user is _NOBODY:
        raise UsageError(f'a limit is by "user", and nobody has said who that is: {advice}')
    return name_of(user)


_NOBODY = object()
#: What a limiter in memory answers at once; others answer with an awaitable.
DECIDED = (Verdict, Refusal)


async def deny(
    verdict: Verdict | Refusal, scope: Scope, receive: Receive, send: Send, outer: Any, on_denied: Callable[..., Any] | None
) -> None:
    """Responds to a denied request."""
    if outer is not None and isinstance(verdict, Verdict):
        outer.add(verdict)
    status, headers, body = verdict._denial(outer is None)
    if on_denied is not None and isinstance(verdict, Verdict) and can_respond(scope):
        response = await awaited(on_denied(scope, verdict))
        if response is not None:
            if scope["type"] == "websocket":
                await receive()
            await response(scope, receive, _denied.sender(send, status, headers))
            return
    headers.append((b"content-length", str(len(body)).encode()))
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        return
    await receive()
    if can_respond(scope):
        await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": body})
    else:
        # Before the handshake is accepted, servers turn this into a 403.
        await send({"type": "websocket.close", "code": TRY_AGAIN_LATER, "reason": "rate limited"})


def can_respond(scope: Scope) -> bool:
    """Whether the server can answer with a response: not all can answer a handshake with one."""
    return scope["type"] == "http" or "websocket.http.response" in (scope.get("extensions") or {})
