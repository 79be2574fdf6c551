"""Rate limiting for WSGI applications: Flask, Django, Bottle and every other WSGI application.

>>> app.wsgi_app = RateLimitMiddleware(app.wsgi_app, limit="100/min burst 20")
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Any

from . import _denied
from ._awaited import at_once
from ._counting import ResponseHead, decide_sync
from ._errors import UsageError
from ._identity import addressed_environ, attributes_of, key_of, name_of
from ._middleware import LAYER, Middleware, verdict_of
from ._rules import KEY, texts
from ._tollkeeper import Collector, Refusal, Verdict

__all__ = ["RateLimitMiddleware", "ResponseHead", "verdict_of"]

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
        known = self._known(environ) if self._asks or self.limiter._needs_user() else None
        count_when = self._count_when
        seen = addressed_environ(environ, self._address)
        verdict = self.limiter._check_wsgi(seen, known, at_once(self._cost_of(environ), "cost"), count_when is not None)
        outer: Collector | None = environ.get(LAYER)
        if not verdict.allowed:
            return deny(verdict, environ, start_response, outer, self._on_denied)
        assert isinstance(verdict, Verdict)
        if outer is None:
            outer = environ[LAYER] = Collector()
            start_response = _with_limits(start_response, outer)
        outer.add(verdict)
        if verdict.delay:
            time.sleep(verdict.delay)
        if count_when is None:
            try:
                return _Held(self.app(environ, start_response), verdict)
            except BaseException:
                verdict._release()
                raise
        charge = _Charge(verdict, count_when, start_response)
        try:
            return _Counted(self.app(environ, charge.start), verdict, charge)
        except BaseException as error:
            verdict._release()
            charge.fail(error)
            raise

    def _known(self, environ: Environ) -> dict[str, Any]:
        known = {} if self._attributes is None else attributes_of(at_once(self._attributes(environ), "attributes"))
        if self._key is not None:
            known[KEY] = key_of(at_once(self._key(environ), "by"))
        elif "user" not in known and self.limiter._needs_user():
            known["user"] = user_of(environ)
        return known


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


class _Charge:
    """What a request was charged, until its response is known."""

    def __init__(self, verdict: Verdict, count_when: Callable[[ResponseHead], Any], start_response: StartResponse) -> None:
        self._verdict = verdict
        self._count_when = count_when
        self._start_response = start_response
        self._head: ResponseHead | None = None
        self._is_decided = False

    def start(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        # An error may still replace it, until a part of the body is sent.
        self._head = ResponseHead(int(status.split(" ", 1)[0]), headers)
        return self._start_response(status, headers, exc_info)

    def decide(self) -> None:
        """Without a response the request counts."""
        if self._head is not None and not self._is_decided:
            self._is_decided = True
            decide_sync(self._verdict, self._count_when, self._head)

    def fail(self, error: BaseException) -> None:
        if isinstance(error, Exception):
            # What it becomes outside of this.
            self._head = ResponseHead(500)
            self.decide()


class _Counted(_Held):
    """A response by which the request counts, or does not."""

    def __init__(self, response: Iterable[bytes], verdict: Verdict, charge: _Charge) -> None:
        super().__init__(response, verdict)
        self._charge = charge

    def __iter__(self) -> Iterator[bytes]:
        try:
            for part in self._response:
                if part:
                    self._charge.decide()
                yield part
            # There is no body, and not all middleware closes what it has read.
            self._charge.decide()
        except Exception as error:
            self._charge.fail(error)
            raise

    def close(self) -> None:
        try:
            self._charge.decide()
        finally:
            super().close()


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


def deny(
    verdict: Verdict | Refusal,
    environ: Environ,
    start_response: StartResponse,
    outer: Collector | None,
    on_denied: Callable[..., Any] | None,
) -> Iterable[bytes]:
    """Responds to a denied request."""
    if outer is not None and isinstance(verdict, Verdict):
        outer.add(verdict)
    status, fields, body = verdict._denial(outer is None)
    headers = texts(fields)
    if on_denied is not None and isinstance(verdict, Verdict):
        response = at_once(on_denied(environ, verdict), "on_denied")
        if response is not None:
            answer: Iterable[bytes] = response(environ, _as_denial(start_response, status, headers))
            return answer
    headers.append(("content-length", str(len(body))))
    start_response(f"{status} {phrase(status)}", headers)
    return [body]


def _as_denial(start_response: StartResponse, denial: int, fields: list[tuple[str, str]]) -> StartResponse:
    def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        own = int(status.split(" ", 1)[0])
        code = _denied.status_of(own, denial)
        status = status if code == own else f"{code} {phrase(code)}"
        return start_response(status, [*headers, *_denied.missing(headers, fields)], exc_info)

    return start


def phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Denied"
