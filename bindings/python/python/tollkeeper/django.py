"""Limits for Django: a middleware for all requests, and a decorator for single views, sync or async.

>>> MIDDLEWARE = [..., "tollkeeper.django.RateLimitMiddleware"]
>>> TOLLKEEPER = {"limit": "100/min burst 20", "by": "user|ip"}

>>> @limit("5/min", by="ip")
... def login(request): ...
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from typing import Any, TypeVar

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.core.exceptions import BadRequest, ImproperlyConfigured, MiddlewareNotUsed, PermissionDenied, SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

from . import _denied, _routes
from ._awaited import at_once, awaited
from ._counting import decide, decide_sync
from ._errors import UsageError
from ._identity import AddressOf, addressed_environ, addressed_scope, attributes_of, key_of, name_of
from ._middleware import Middleware
from ._routes import ROUTE, RouteLimit, require_view, unrouted
from ._rules import KEY, By, LimitLike, cost_of, texts
from ._tollkeeper import Collector, Limiter, Refusal, Verdict

__all__ = ["Limits", "RateLimitMiddleware", "limit", "verdict_of"]

_View = TypeVar("_View", bound=Callable[..., Any])
_LAYER = "_tollkeeper"
#: Where the limits on all requests come from: one of these in ``settings.TOLLKEEPER``.
_SOURCES = ("limit", "rules", "file", "limiter")
#: Settings of ``Limiter.from_rules``, beside the store.
_SETTINGS = (
    "timeout",
    "max_keys",
    "namespace",
    "trusted_proxies",
    "client_address",
    "ipv6_prefix",
    "headers",
    "identify",
    "deny_status",
    "clock",
)


class Limits(_routes.Limits):
    """Limits for views, with their store and settings: ``limit = Limits(store="redis://127.0.0.1:6379")``."""

    def __call__(
        self,
        limit: LimitLike,
        *,
        by: By = None,
        name: str | None = None,
        cost: int | Callable[[Any], Any] = 1,
        exempt: Callable[[HttpRequest], Any] | None = None,
        count_when: Callable[[Any], Any] | None = None,
        on_denied: Callable[[HttpRequest, Verdict], Any] | None = None,
    ) -> Callable[[_View], _View]:
        """A decorator that limits the view it is put on.

        :param by: an attribute such as ``"header.x-api-key|ip"`` or ``"user"``; or a function of the request, sync or (for async
            views) async, that returns a key. The client's address by default.
        :param name: a name shared by several views, which then count together.
        :param exempt: a function of the request, async only for async views, that tells whether it is not limited: ``lambda request:
            request.method == "GET"``.
        :param count_when: a function of the response, async only for async views, that tells whether the request counts: ``lambda
            response: response.status_code == 200`` counts the logins that Django's form refuses.
        :param on_denied: answers denied requests: a function of the request and the verdict, async only for async views, that returns
            a response, or None for the usual answer. Status and headers of the denial are added, unless it has others.
        """
        route_limit = RouteLimit(self, limit, by, name, cost, exempt, count_when, on_denied)

        def decorate(view: _View) -> _View:
            require_view(view, '@method_decorator(limit("5/min"), name="dispatch") for a class')
            if iscoroutinefunction(view):

                @functools.wraps(view)
                async def limited_async(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
                    if await route_limit.is_exempt(request):
                        return await view(request, *args, **kwargs)
                    limiter, known, key, cost = _question(route_limit, view, request)
                    if key is not None:
                        known[KEY] = key_of(await awaited(key))
                    count_when = route_limit.count_when
                    verdict = await _ask(limiter, request, known, await awaited(cost), count_when, route_limit.limits._address_of())
                    layer, is_outermost = _layer(request)
                    _add(layer, verdict)
                    if not verdict.allowed:
                        response = _denial(verdict, await awaited(_answer(route_limit.on_denied, request, verdict)))
                    else:
                        try:
                            if verdict.delay:
                                await asyncio.sleep(verdict.delay)
                            response = await view(request, *args, **kwargs)
                        except Exception as error:
                            if count_when is not None:
                                await decide(verdict, count_when, HttpResponse(status=_status_of(error)))
                            raise
                        finally:
                            verdict._release()
                        if count_when is not None:
                            await decide(verdict, count_when, response)
                    return _with_limits(layer, response) if is_outermost else response

                return limited_async  # type: ignore[return-value]

            @functools.wraps(view)
            def limited(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
                if route_limit.is_exempt_sync(request):
                    return view(request, *args, **kwargs)
                limiter, known, key, cost = _question(route_limit, view, request)
                if key is not None:
                    known[KEY] = key_of(at_once(key, "by"))
                count_when = route_limit.count_when
                verdict = _ask_sync(limiter, request, known, at_once(cost, "cost"), count_when, route_limit.limits._address_of())
                layer, is_outermost = _layer(request)
                _add(layer, verdict)
                if not verdict.allowed:
                    response = _denial(verdict, at_once(_answer(route_limit.on_denied, request, verdict), "on_denied"))
                else:
                    try:
                        if verdict.delay:
                            time.sleep(verdict.delay)
                        response = view(request, *args, **kwargs)
                    except Exception as error:
                        if count_when is not None:
                            decide_sync(verdict, count_when, HttpResponse(status=_status_of(error)))
                        raise
                    finally:
                        verdict._release()
                    if count_when is not None:
                        decide_sync(verdict, count_when, response)
                return _with_limits(layer, response) if is_outermost else response

            return limited  # type: ignore[return-value]

        return decorate


class _SiteLimits(Limits):
    """Limits with the store and the other settings of ``settings.TOLLKEEPER``."""

    def _given(self) -> dict[str, Any]:
        config = _config()
        return {name: config[name] for name in ("store", *_SETTINGS) if name in config}

    def _is_enabled(self) -> bool:
        return self.enabled and bool(_config().get("enabled", True))

    def _address_of(self) -> AddressOf:
        found: AddressOf = _config().get("address")
        return found


def _config() -> dict[str, Any]:
    try:
        return getattr(settings, "TOLLKEEPER", None) or {}
    except ImproperlyConfigured:
        # Views may be decorated before Django is set up, and not asked.
        return {}


#: Limits with the store and the proxies of ``settings.TOLLKEEPER``; in this process's memory by default.
limit = _SiteLimits()


class _Site(Middleware[None, HttpRequest]):
    """The limits on all requests."""

    def _path_of(self, request: Any) -> Any:
        return request.path_info

    def question(self, request: HttpRequest) -> tuple[Any, Any]:
        """The key of a request and its cost, which an async function may have yet to find."""
        return self._key(request) if self._key is not None else None, self._cost_of(request)


def _configured() -> _Site:
    """The limits that ``settings.TOLLKEEPER`` describes."""
    config = dict(_config())
    config.pop("enabled", None)
    if sum(source in config for source in _SOURCES) != 1:
        raise UsageError(
            'settings.TOLLKEEPER: write one of limit, rules, file or limiter, for example TOLLKEEPER = {"limit": "100/min burst 20"}'
        )
    names = [*_SOURCES, "enabled", "by", "name", "attributes", "address", "exempt", "cost", "count_when", "on_denied", "store", *_SETTINGS]
    for unknown in (name for name in config if name not in names):
        raise UsageError(f"settings.TOLLKEEPER: there is no setting {unknown!r}; use one of {', '.join(names)}")
    if "file" in config:
        store = {"store": config.pop("store")} if "store" in config else {}
        config["limiter"] = Limiter.from_file(config.pop("file"), **store)
    elif "rules" in config:
        given = {name: config.pop(name) for name in ("store", *_SETTINGS) if name in config}
        config["limiter"] = Limiter.from_rules(config.pop("rules"), **given)
    return _Site(None, **config)


@sync_and_async_middleware
def RateLimitMiddleware(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Limits all requests by ``settings.TOLLKEEPER``: ``limit`` and ``by``, ``rules``, ``file`` or ``limiter``; ``exempt``, ``cost``,
    ``count_when``, ``on_denied``, ``attributes``, ``address``, ``enabled``, and the settings of ``Limiter.from_rules``. For limits by ``user`` put it
    behind ``AuthenticationMiddleware``."""
    site = _configured()
    limiter = site.limiter
    if not _config().get("enabled", True):
        raise MiddlewareNotUsed

    if iscoroutinefunction(get_response):

        async def limited_async(request: HttpRequest) -> Any:
            if await awaited(site._is_exempt(request)):
                return await get_response(request)
            if limiter._lacks_rules():
                await limiter._follow()
            key, cost = site.question(request)
            known = {} if site._attributes is None else attributes_of(await awaited(site._attributes(request)))
            if key is not None:
                known[KEY] = key_of(await awaited(key))
            if "user" not in known and limiter._needs_user():
                known["user"] = name_of(await request.auser()) if hasattr(request, "auser") else _user(request)
            verdict = await _ask(limiter, request, known, await awaited(cost), site._count_when, site._address)
            layer, _ = _layer(request)
            _add(layer, verdict)
            if not verdict.allowed:
                response = _denial(verdict, await awaited(_answer(site._on_denied, request, verdict)))
            else:
                try:
                    if verdict.delay:
                        await asyncio.sleep(verdict.delay)
                    response = await get_response(request)
                finally:
                    verdict._release()
                if site._count_when is not None:
                    await decide(verdict, site._count_when, response)
            return _with_limits(layer, response)

        return limited_async

    def limited(request: HttpRequest) -> Any:
        if at_once(site._is_exempt(request), "exempt"):
            return get_response(request)
        if limiter._lacks_rules():
            limiter._follow_sync()
        key, cost = site.question(request)
        known = {} if site._attributes is None else attributes_of(at_once(site._attributes(request), "attributes"))
        if key is not None:
            known[KEY] = key_of(at_once(key, "by"))
        if "user" not in known and limiter._needs_user():
            known["user"] = _user(request)
        verdict = _ask_sync(limiter, request, known, at_once(cost, "cost"), site._count_when, site._address)
        layer, _ = _layer(request)
        _add(layer, verdict)
        if not verdict.allowed:
            response = _denial(verdict, at_once(_answer(site._on_denied, request, verdict), "on_denied"))
        else:
            try:
                if verdict.delay:
                    time.sleep(verdict.delay)
                response = get_response(request)
            finally:
                verdict._release()
            if site._count_when is not None:
                decide_sync(verdict, site._count_when, response)
        return _with_limits(layer, response)

    return limited


def _question(
    route_limit: RouteLimit, view: Callable[..., Any], request: HttpRequest
) -> tuple[Limiter, dict[str, Any], Any, Any]:
    """The limiter, what is known of a request, and its key and cost, which an async function may have yet to find."""
    if not hasattr(request, "META"):
        raise UsageError(
            f"expected a request, not {request!r}; decorate a method with @method_decorator(limit(...)), or its class with "
            'name="dispatch"'
        )
    match = request.resolver_match
    # Nothing that clients choose, such as the path and the method: each would have its own count.
    route = f"/{match.route.lstrip('/')}" if match is not None else unrouted(view)
    limiter, name = route_limit.rule_for(route)
    known: dict[str, Any] = {ROUTE: name}
    by = route_limit.by
    if isinstance(by, str) and "user" in by.split("|"):
        known["user"] = _user(request)
    return limiter, known, by(request) if callable(by) else None, cost_of(route_limit.cost, request)


def _ask_sync(
    limiter: Limiter,
    request: HttpRequest,
    known: dict[str, Any],
    cost: int,
    count_when: Callable[[Any], Any] | None,
    address: AddressOf,
) -> Any:
    # Also under ASGI, where sync views run in threads: META has the server's values, with WSGI's names.
    return limiter._check_wsgi(addressed_environ(request.META, _asking(address, request)), known, cost, count_when is not None)


async def _ask(
    limiter: Limiter,
    request: HttpRequest,
    known: dict[str, Any],
    cost: int,
    count_when: Callable[[Any], Any] | None,
    address: AddressOf,
) -> Any:
    scope = getattr(request, "scope", None)
    if scope is None:
        return _ask_sync(limiter, request, known, cost, count_when, address)
    answer = limiter._check_asgi(addressed_scope(scope, _asking(address, request)), known, cost, count_when is not None)
    return answer if isinstance(answer, (Verdict, Refusal)) else await answer


def _asking(address: AddressOf, request: HttpRequest) -> AddressOf:
    """Django's functions get its request."""
    return None if address is None else lambda _: address(request)


def _layer(request: HttpRequest) -> tuple[Collector, bool]:
    layer: Collector | None = getattr(request, _LAYER, None)
    if layer is not None:
        return layer, False
    layer = Collector()
    setattr(request, _LAYER, layer)
    return layer, True


def verdict_of(request: HttpRequest) -> Verdict | None:
    """The verdict of all limits on a request so far."""
    layer: Collector | None = getattr(request, _LAYER, None)
    return None if layer is None else layer.verdict


def _add(layer: Collector, verdict: Verdict | Refusal) -> None:
    if isinstance(verdict, Verdict):
        layer.add(verdict)


def _answer(on_denied: Callable[..., Any] | None, request: HttpRequest, verdict: Verdict | Refusal) -> Any:
    """The application's own answer to a denied request, or an awaitable of it."""
    return None if on_denied is None or not isinstance(verdict, Verdict) else on_denied(request, verdict)


def _denial(verdict: Verdict | Refusal, answer: Any) -> Any:
    status, fields, body = verdict._denial(False)
    if answer is None:
        response = HttpResponse(body, status=status)
        for name, value in texts(fields):
            response[name] = value
        return response
    _denied.require(answer, HttpResponseBase)
    _denied.complete(answer, status, texts(fields))
    return answer


#: What Django makes of exceptions; any other one is a 500.
_STATUSES: dict[type[Exception], int] = {
    Http404: 404,
    PermissionDenied: 403,
    BadRequest: 400,
    SuspiciousOperation: 400,
    MultiPartParserError: 400,
}


def _status_of(error: Exception) -> int:
    return next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), 500)


def _with_limits(layer: Collector, response: Any) -> Any:
    for name, value in _denied.without_own(response, layer.headers()):
        response[name] = value
    return response


def _user(request: HttpRequest) -> str | None:
    if not hasattr(request, "user"):
        raise UsageError(
            'a limit is by "user", and nobody has said who that is: put django.contrib.auth.middleware.AuthenticationMiddleware '
            "before it in MIDDLEWARE, or give by= a function of the request"
        )
    return name_of(request.user)
