"""Which responses count. A request is charged before it is handled, so that many at the same time cannot pass together; if its
response does not count, the charge is given back before the response is sent. A client that disconnects before there is a
response has been counted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from ._awaited import at_once, awaited
from ._errors import ConfigError, TollkeeperError
from ._tollkeeper import Verdict

#: Where inner layers of ASGI find the ``send`` that shows them responses.
COUNTING = "tollkeeper.counting"


class ResponseHead:
    """The head of a response, where the framework has no object for it."""

    __slots__ = ("headers", "status_code")

    def __init__(self, status_code: int, headers: Iterable[tuple[str, str]] = ()) -> None:
        self.status_code = status_code
        #: By name in lower case.
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in headers}


def checked_function(value: Any, option: str) -> Any:
    """A function as it was given, if it is one."""
    if value is None or callable(value):
        return value
    raise ConfigError(f"{option}: must be a function, not {value!r}")


async def decide(verdict: Verdict, count_when: Callable[[Any], Any], response: Any) -> None:
    """Gives the charge back if the response does not count."""
    if not await awaited(count_when(response)):
        try:
            await verdict._give_back()
        except TollkeeperError:
            # Then it counts. What is wrong with the store is logged by the library.
            pass


def decide_sync(verdict: Verdict, count_when: Callable[[Any], Any], response: Any) -> None:
    """The same, blocking this thread."""
    if not at_once(count_when(response), "count_when"):
        try:
            verdict._give_back_sync()
        except TollkeeperError:
            pass


class Counting:
    """An ASGI ``send`` that shows the head of the response to those who count."""

    def __init__(self, send: Callable[[Any], Awaitable[None]]) -> None:
        self._send = send
        self._charged: list[tuple[Verdict, Callable[[Any], Any]]] = []

    def add(self, verdict: Verdict, count_when: Callable[[Any], Any]) -> None:
        self._charged.append((verdict, count_when))

    async def __call__(self, message: Any) -> None:
        if self._charged:
            kind = message["type"]
            if kind in ("http.response.start", "websocket.http.response.start"):
                # They may be an iterator, which can be read once.
                headers: list[tuple[bytes, bytes]] = list(message.get("headers") or ())
                message = {**message, "headers": headers}
                await self.decide(message["status"], [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers])
            elif kind == "websocket.accept":
                await self.decide(101)
            elif kind == "websocket.close":
                await self.decide(403)
        await self._send(message)

    async def decide(self, status: int, headers: Sequence[tuple[str, str]] = ()) -> None:
        # If a function fails, the others are asked about the response to that.
        while self._charged:
            verdict, count_when = self._charged.pop(0)
            await decide(verdict, count_when, ResponseHead(status, headers))


class CountingMiddleware:
    """ASGI middleware that shows responses to limits of routes with ``count_when``: ``app.add_middleware(CountingMiddleware)``."""

    def __init__(self, app: Callable[[Any, Any, Any], Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] not in ("http", "websocket") or COUNTING in scope:
            await self.app(scope, receive, send)
            return
        counting = scope[COUNTING] = Counting(send)
        try:
            await self.app(scope, receive, counting)
        except Exception:
            # What it becomes outside of this.
            await counting.decide(500)
            raise
