"""Rate limiting for ASGI applications: Starlette, FastAPI, Litestar, Django and every other ASGI 3 application.

>>> app.add_middleware(RateLimitMiddleware, limit="100/min burst 20")

Denied requests get 429 with ``Retry-After``, the limit headers and a problem document, without reaching the application;
passed ones get the limit headers. WebSocket handshakes are limited too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from inspect import isawaitable
from typing import Any

from ._errors import UsageError
from ._identity import key_of, name_of
from ._rules import KEY, By, LimitLike, given, rules_of
from ._tollkeeper import Limiter, Refusal, Sender, Verdict

# Defined as in Starlette and others, so that type checkers accept either.
Scope = Any
Message = Any
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

#: Where inner layers find the outermost one, so that all limits are in one set of headers.
LAYER = "tollkeeper"

#: "Try Again Later", for servers that cannot answer a handshake with a response.
TRY_AGAIN_LATER = 1013


class RateLimitMiddleware:
    """Limits all requests by one limit, or by the rules of a limiter.

    :param limit: ``"100/min burst 20"``, a ``Quota``, or several of them.
    :param by: what identifies clients: an attribute such as ``"header.x-api-key|ip"`` or ``"user"``, or a function of
        the scope, sync or async, that returns a key (None: not limited). The client's address by default.
    :param limiter: a ``Limiter`` with rules of its own, instead of ``limit``.
    :param name: the name of the limit in headers and in the store.
    :param store: ``"memory:"`` (each process counts separately) or ``"redis://..."`` (all count together).
    :param exempt: paths that are not limited, or a function of the scope.
    :param cost: what a request costs, or a function of the scope.
    :param timeout: how long Redis may take, in seconds; the others are settings of ``Limiter.from_rules`` as well.
    """

    def __init__(
        self,
        app: ASGIApp,
        limit: LimitLike | None = None,
        *,
        by: By = None,
        limiter: Limiter | None = None,
        name: str = "requests",
        store: str = "memory:",
        exempt: Iterable[str] | Callable[[Scope], bool] = (),
        cost: int | Callable[[Scope], int] = 1,
        timeout: float | str | None = None,
        max_keys: int | None = None,
        namespace: str | None = None,
        trusted_proxies: Iterable[str] | None = None,
        client_address: str | None = None,
        ipv6_prefix: int | None = None,
        headers: str | None = None,
        identify: Mapping[str, str] | None = None,
        deny_status: int | None = None,
    ) -> None:
        # By name, because type checkers do not follow **settings through add_middleware.
        settings = given(
            timeout=timeout,
            max_keys=max_keys,
            namespace=namespace,
            trusted_proxies=trusted_proxies,
            client_address=client_address,
            ipv6_prefix=ipv6_prefix,
            headers=headers,
            identify=identify,
            deny_status=deny_status,
        )
        if (limit is None) == (limiter is None):
            raise UsageError("give either limit=, such as \"100/min burst 20\", or limiter=")
        if limiter is None:
            assert limit is not None
            limiter = Limiter.from_rules(rules_of(limit, by, name), store=store, **settings)
        elif settings or by is not None and not callable(by):
            raise UsageError("limiter= brings its own settings; give them to Limiter.from_rules or Limiter.from_file")
        self.app = app
        self.limiter = limiter
        self._check = limiter._check_asgi
        self._key = by if callable(by) else None
        self._exempt = exempt if callable(exempt) else frozenset(exempt)
        self._cost = cost

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if (kind != "http" and kind != "websocket") or (self._exempt and self._is_exempt(scope)):
            await self.app(scope, receive, send)
            return
        if self.limiter._lacks_rules():
            await self.limiter._follow()
        known = await self._known(scope) if self._key is not None or self.limiter._needs_user() else None
        cost = self._cost if isinstance(self._cost, int) else self._cost(scope)
        verdict = await _decided(self._check(scope, known, cost))
        outer = scope.get(LAYER)
        if not verdict.allowed:
            await deny(verdict, scope, receive, send, outer)
            return
        assert isinstance(verdict, Verdict)
        if outer is None:
            scope[LAYER] = send = Sender(send, verdict)
        else:
            outer.add(verdict)
        try:
            delay = verdict.delay
            if delay:
                await asyncio.sleep(delay)
            await self.app(scope, receive, send)
        finally:
            verdict._release()

    def _is_exempt(self, scope: Scope) -> bool:
        return self._exempt(scope) if callable(self._exempt) else scope["path"] in self._exempt

    async def _known(self, scope: Scope) -> dict[str, Any]:
        if self._key is not None:
            value = self._key(scope)
            return {KEY: key_of(await value if isawaitable(value) else value)}
        return {"user": user_of(scope)}


async def _decided(answer: Any) -> Verdict | Refusal:
    if isinstance(answer, (Verdict, Refusal)):
        return answer
    decided: Verdict | Refusal = await answer
    return decided


def user_of(scope: Scope) -> str | None:
    """The user who is logged in, from the authentication middleware."""
    state = scope.get("state")
    user = scope.get("user", state.get("user", _NOBODY) if isinstance(state, dict) else _NOBODY)
    if user is _NOBODY:
        raise UsageError(
            'a limit is by "user", and nobody has said who that is: put RateLimitMiddleware inside of the middleware that '
            "authenticates (Starlette runs the one that was added last first), or give by= a function"
        )
    return name_of(user)


_NOBODY = object()


async def deny(verdict: Verdict | Refusal, scope: Scope, receive: Receive, send: Send, outer: Any) -> None:
    """Responds to a denied request."""
    if outer is not None and isinstance(verdict, Verdict):
        outer.add(verdict)
    status, headers, body = verdict._denial(outer is None)
    headers.append((b"content-length", str(len(body)).encode()))
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        return
    await receive()
    if "websocket.http.response" in (scope.get("extensions") or {}):
        await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": body})
    else:
        # Before the handshake is accepted, servers turn this into a 403.
        await send({"type": "websocket.close", "code": TRY_AGAIN_LATER, "reason": "rate limited"})
