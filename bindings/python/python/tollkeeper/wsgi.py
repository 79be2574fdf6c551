"""Rate limiting for WSGI applications: Flask, Django, Bottle and every other WSGI application.

>>> app.wsgi_app = RateLimitMiddleware(app.wsgi_app, limit="100/min burst 20")
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

from ._errors import UsageError
from ._identity import key_of, name_of
from ._rules import KEY, By, LimitLike, given, rules_of
from ._tollkeeper import Collector, Limiter, Refusal, Verdict

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
WSGIApp = Callable[[Environ, StartResponse], Iterable[bytes]]

#: Where inner layers find the outermost one, so that all limits are in one set of headers.
LAYER = "tollkeeper"


class RateLimitMiddleware:
    """Limits all requests by one limit, or by the rules of a limiter. The parameters are those of the ASGI middleware, with
    functions of the WSGI environment in place of functions of the scope."""

    def __init__(
        self,
        app: WSGIApp,
        limit: LimitLike | None = None,
        *,
        by: By = None,
        limiter: Limiter | None = None,
        name: str = "requests",
        store: str = "memory:",
        exempt: Iterable[str] | Callable[[Environ], bool] = (),
        cost: int | Callable[[Environ], int] = 1,
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
        self._key = by if callable(by) else None
        self._exempt = exempt if callable(exempt) else frozenset(exempt)
        self._cost = cost

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if self._exempt and self._is_exempt(environ):
            return self.app(environ, start_response)
        if self.limiter._lacks_rules():
            self.limiter._follow_sync()
        known = None
        if self._key is not None:
            known = {KEY: key_of(self._key(environ))}
        elif self.limiter._needs_user():
            known = {"user": user_of(environ)}
        cost = self._cost if isinstance(self._cost, int) else self._cost(environ)
        verdict = self.limiter._check_wsgi(environ, known, cost)
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

    def _is_exempt(self, environ: Environ) -> bool:
        return self._exempt(environ) if callable(self._exempt) else environ.get("PATH_INFO") in self._exempt


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
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in fields]
    headers.append(("content-length", str(len(body))))
    start_response(f"{status} {phrase(status)}", headers)
    return [body]


def phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Denied"
