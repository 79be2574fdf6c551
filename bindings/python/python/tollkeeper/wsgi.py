"""Rate limiting for WSGI applications: Flask, Django, Bottle and every other WSGI application.

>>> app.wsgi_app = RateLimitMiddleware(app.wsgi_app, limit="100/min burst 20")
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Any

from ._awaited import at_once
from ._errors import UsageError
from ._identity import key_of, name_of
from ._middleware import LAYER, Middleware, verdict_of
from ._rules import KEY, texts
from ._tollkeeper import Collector, Refusal, Verdict

__all__ = ["RateLimitMiddleware", "verdict_of"]

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
WSGIApp = Callable[[Environ, StartResponse], Iterable[bytes]]


class RateLimitMiddleware(Middleware[WSGIApp, Environ]):
    __doc__ = Middleware.__doc__
    _path = "PATH_INFO"

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if at_once(self._is_exempt(environ), "exempt"):
            return self.app(environ, start_response)
        if self.limiter._lacks_rules():
            self.limiter._follow_sync()
        known = None
        if self._key is not None:
            known = {KEY: key_of(at_once(self._key(environ), "by"))}
        elif self.limiter._needs_user():
            known = {"user": user_of(environ)}
        verdict = self.limiter._check_wsgi(environ, known, at_once(self._cost_of(environ), "cost"))
        outer: Collector | None = environ.get(LAYER)
        if not verdict.allowed:
            return deny(verdict, start_response, outer)
        assert isinstance(verdict, Verdict)
        if outer is None:
            outer = environ[LAYER] = Collector()
            start_response = _with_limits(start_response, outer)
        outer.add(verdict)
        if verdict.delay:
            time.sleep(verdict.delay)
        try:
            return _Held(self.app(environ, start_response), verdict)
        except BaseException:
            verdict._release()
            raise


class _Held:
    """A response whose slots are released when it has been sent or aborted."""

    def __init__(self, response: Iterable[bytes], verdict: Verdict) -> None:
        self._response = response
        self._verdict = verdict

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._response)

    def close(self) -> None:
        try:
            close = getattr(self._response, "close", None)
            if close is not None:
                close()
        finally:
            self._verdict._release()


def _with_limits(start_response: StartResponse, layer: Collector) -> StartResponse:
    def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        return start_response(status, layer.apply(headers), exc_info)

    return start


def user_of(environ: Environ) -> str | None:
    """The user who is logged in, from the server or the authentication middleware."""
    if "REMOTE_USER" not in environ:
        raise UsageError(
            'a limit is by "user", and nobody has said who that is: no REMOTE_USER is set. Give by= a function of the '
            "environment, or limit views, where the framework knows its user (tollkeeper.flask, tollkeeper.django)"
        )
    return name_of(environ["REMOTE_USER"] or None)


def deny(verdict: Verdict | Refusal, start_response: StartResponse, outer: Collector | None) -> Iterable[bytes]:
    """Responds to a denied request."""
    if outer is not None and isinstance(verdict, Verdict):
        outer.add(verdict)
    status, fields, body = verdict._denial(outer is None)
    headers = texts(fields)
    headers.append(("content-length", str(len(body))))
    start_response(f"{status} {phrase(status)}", headers)
    return [body]


def phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Denied"
