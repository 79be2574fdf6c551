"""Answers of the application to denied requests. They keep the status and the headers of a denial, unless they have their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ._errors import UsageError

_OF_THE_BODY = ("content-type", "content-length")


def require(response: Any, kind: type[Any]) -> None:
    """Refuses what is no response: the request must not pass because of it."""
    if not isinstance(response, kind):
        raise UsageError(f"on_denied: must return a {kind.__name__} or None, not {response!r}")


def status_of(own: int, denial: int) -> int:
    """The status of such an answer. Frameworks write 200 where none is given, which would tell clients that they passed."""
    return denial if own == 200 else own


def complete(response: Any, denial: int, fields: list[tuple[str, str]]) -> None:
    """Gives an answer the status and the headers of a denial, beside its own. Limit headers that are added to it later leave these."""
    # The application may return one object for many denials: what the last of them added is not its own.
    own: tuple[int, frozenset[str]] | None = getattr(response, "_tollkeeper_own", None)
    if own is None:
        own = response._tollkeeper_own = (response.status_code, frozenset(name.lower() for name in response.headers.keys()))
    status, names = own
    response.status_code = status_of(status, denial)
    for name, value in fields:
        if name not in _OF_THE_BODY and name not in names:
            response.headers[name] = value


def missing(own: list[tuple[str, str]], fields: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The headers of a denial that an answer does not have."""
    names = {name.lower() for name, _ in own}
    return [(name, value) for name, value in fields if name not in _OF_THE_BODY and name not in names]


def without_own(response: Any, fields: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The limit headers to add to a response."""
    _, own = getattr(response, "_tollkeeper_own", (None, ()))
    return [field for field in fields if field[0] not in own]


def sender(
    send: Callable[[Any], Awaitable[None]], status: int, fields: list[tuple[bytes, bytes]]
) -> Callable[[Any], Awaitable[None]]:
    """An ASGI ``send`` for such an answer."""

    async def send_denial(message: Any) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            own: list[tuple[bytes, bytes]] = list(message.get("headers") or ())
            names = {name.lower() for name, _ in own}
            more = [field for field in fields if field[0] not in names and field[0].decode() not in _OF_THE_BODY]
            message = {**message, "status": status_of(message["status"], status), "headers": [*own, *more]}
        await send(message)

    return send_denial
