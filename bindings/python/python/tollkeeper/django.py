"""Limits for Django: a middleware for all requests, and a decorator for single views, sync or async.

>>> MIDDLEWARE = [..., "tollkeeper.django.RateLimitMiddleware"]
>>> TOLLKEEPER = {"limit": "100/min burst 20", "by": "user|ip"}

>>> @limit("5/min", by="ip")
... def login(request): ...
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.conf import settings
from django.core.exceptions import BadRequest, ImproperlyConfigured, MiddlewareNotUsed, PermissionDenied, SuspiciousOperation
from django.core.signals import setting_changed
from django.dispatch import receiver
from django.http import Http404, HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError
from django.http.response import HttpResponseBase
from django.urls import URLResolver, get_resolver
from django.utils.decorators import sync_and_async_middleware
from django.utils.functional import SimpleLazyObject
from django.utils.translation import get_language, override

from . import _denied, _routes
from ._awaited import at_once, awaited
from ._counting import decide, decide_sync
from ._errors import TollkeeperWarning, UsageError
from ._identity import AddressOf, addressed_environ, addressed_scope, attributes_of, key_of, name_of
from ._middleware import LAYER, Middleware
from ._routes import RouteLimit, require_view, unrouted
from ._rules import KEY, By, LimitLike, texts
from ._tollkeeper import Collector, Limiter, Refusal, Sender, Verdict

__all__ = ["Limits", "RateLimitMiddleware", "limit", "verdict_of"]

_View = TypeVar("_View", bound=Callable[..., Any])
_LAYER = "_tollkeeper"
#: Whose users ``request.auser`` knows.
_OF_DJANGO = "django.contrib.auth.middleware"
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
        limit: LimitLike | None = None,
        *,
        by: By = None,
        limiter: Limiter | None = None,
        name: str | None = None,
        attributes: Callable[[HttpRequest], Any] | None = None,
        cost: int | Callable[[Any], Any] = 1,
        exempt: Callable[[HttpRequest], Any] | None = None,
        count_when: Callable[[Any], Any] | None = None,
        on_denied: Callable[[HttpRequest, Verdict], Any] | None = None,
    ) -> Callable[[_View], _View]:
        """A decorator that limits the view it is put on.

        :param by: an attribute such as ``"header.x-api-key|ip"`` or ``"user"``; or a function of the request, sync or (for async
            views) async, that returns a key. The client's address by default.
        :param limiter: a ``Limiter`` with rules of its own, instead of ``limit``.
        :param name: a name shared by several views, which then count together.
        :param attributes: a function of the request, async only for async views, that returns a mapping of attributes for the rules of
            ``limiter``, such as the customer's plan.
        :param exempt: a function of the request, async only for async views, that tells whether it is not limited: ``lambda request:
            request.method == "GET"``.
        :param count_when: a function of the response, async only for async views, that tells whether the request counts: ``lambda
            response: response.status_code == 200`` counts the logins that Django's form refuses.
        :param on_denied: answers denied requests: a function of the request and the verdict, async only for async views, that returns
            a response, or None for the usual answer. Status and headers of the denial are added, unless it has others.
        """
        route_limit = RouteLimit(
            self,
            limit,
            by=by,
            limiter=limiter,
            name=name,
            attributes=attributes,
            cost=cost,
            exempt=exempt,
            count_when=count_when,
            on_denied=on_denied,
        )

        def decorate(view: _View) -> _View:
            require_view(view, '@method_decorator(limit("5/min"), name="dispatch") for a class')
            if _is_async(view):

                @functools.wraps(view)
                async def limited_async(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
                    respond = functools.partial(view, request, *args, **kwargs)
                    if await route_limit.is_exempt(request):
                        return await awaited(respond())
                    return await _respond(_of_view(route_limit, view, request), respond)

                return limited_async  # type: ignore[return-value]

            @functools.wraps(view)
            def limited(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
                respond = functools.partial(view, request, *args, **kwargs)
                if route_limit.is_exempt_sync(request):
                    return respond()
                return _respond_sync(_of_view(route_limit, view, request), respond)

            return limited  # type: ignore[return-value]

        return decorate


def _is_async(view: Callable[..., Any]) -> bool:
    """Whether it returns something to await. So do the methods of a class whose handlers are async, also those that are no coroutine
    functions, such as ``dispatch``. ``method_decorator`` binds a method and wraps it in a partial, which others may have decorated."""
    bound = inspect.unwrap(view, stop=lambda each: isinstance(each, functools.partial))
    within = getattr(getattr(bound, "func", None), "__self__", None)
    return iscoroutinefunction(view) or bool(getattr(within, "view_is_async", False))


class _SiteLimits(Limits):
    """Limits with the store and the other settings of ``settings.TOLLKEEPER``."""

    def _given(self) -> dict[str, Any]:
        config = _config()
        return {name: config[name] for name in ("store", *_SETTINGS) if name in config}

    def _limiter(self) -> Limiter:
        other = next((source for source in ("file", "limiter") if source in _config()), None)
        if self._made is None and other is not None:
            unread = "its trusted_proxies" if "store" in _config() else "its store and its trusted_proxies"
            message = (
                f"settings.TOLLKEEPER has {other!r}, which is for the middleware alone: limits of views and throttles do not use {unread}; "
                "give them their own with limit = Limits(store=..., trusted_proxies=...)"
            )
            warnings.warn(message, TollkeeperWarning, stacklevel=2)
        return super()._limiter()

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


@receiver(setting_changed)
def _reload(*, setting: str, **_: Any) -> None:
    """Tests override settings: another clock or store takes effect, and counts in memory start again."""
    if setting == "TOLLKEEPER":
        with limit._lock:
            limit._made = None


class _Site(Middleware[None, HttpRequest]):
    """The limits on all requests."""

    def _path_of(self, request: Any) -> Any:
        return request.path_info

    def asked(self, request: HttpRequest) -> _Asked:
        return _Asked(
            request,
            self.limiter,
            {},
            {} if self._attributes is None else self._attributes(request),
            self._key(request) if self._key is not None else None,
            self._cost_of(request),
            lambda known: "user" not in known and self.limiter._needs_user(),
            self._count_when,
            self._on_denied,
            self._address,
        )


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
        if not config["rules"]:
            raise UsageError(f"settings.TOLLKEEPER: rules: {config['rules']!r} has no rules, so nobody would be limited")
        given = {name: config.pop(name) for name in ("store", *_SETTINGS) if name in config}
        config["limiter"] = Limiter.from_rules(config.pop("rules"), **given)
    return _Site(None, **config)


@sync_and_async_middleware
def RateLimitMiddleware(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Limits all requests by ``settings.TOLLKEEPER``: ``limit`` and ``by``, ``rules``, ``file`` or ``limiter``; ``exempt``, ``cost``,
    ``count_when``, ``on_denied``, ``attributes``, ``address``, ``enabled``, and the settings of ``Limiter.from_rules``. For limits by ``user`` put it
    behind ``AuthenticationMiddleware``."""
    site = _configured()
    if not _config().get("enabled", True):
        raise MiddlewareNotUsed

    if iscoroutinefunction(get_response):

        async def limited_async(request: HttpRequest) -> Any:
            if await awaited(site._is_exempt(request)):
                return await get_response(request)
            return await _respond(site.asked(request), functools.partial(get_response, request))

        return limited_async

    def limited(request: HttpRequest) -> Any:
        if at_once(site._is_exempt(request), "exempt"):
            return get_response(request)
        return _respond_sync(site.asked(request), functools.partial(get_response, request))

    return limited


class _Asked(NamedTuple):
    """What a layer, the middleware or the limit of a view, asks about a request."""

    request: HttpRequest
    limiter: Limiter
    known: dict[str, Any]
    #: What functions of the application return; awaitables if they are async.
    attributes: Any
    key: Any
    cost: Any
    needs_user: Callable[[dict[str, Any]], bool]
    count_when: Callable[[Any], Any] | None
    on_denied: Callable[..., Any] | None
    address: AddressOf


def _of_view(route_limit: RouteLimit, view: Callable[..., Any], request: HttpRequest) -> _Asked:
    if not hasattr(request, "META"):
        raise UsageError(
            f"expected a request, not {request!r}; decorate a method with @method_decorator(limit(...)), or its class with "
            'name="dispatch"'
        )
    limiter, known = route_limit.limiter_for(_route_of(request, view))
    count_when, on_denied, address = route_limit.count_when, route_limit.on_denied, route_limit.limits._address_of()
    return _Asked(
        request, limiter, known, *route_limit.told(request), route_limit.needs_user, count_when, on_denied, address
    )


def _route_of(request: HttpRequest, view: Callable[..., Any]) -> str:
    """The route's own name, without what clients choose, such as the path, the method and the language: each would have its own count."""
    match = request.resolver_match
    if match is None:
        return unrouted(view)
    route, language = match.route, get_language()
    if language is not None and language != settings.LANGUAGE_CODE:
        route = _routes_in(language, get_resolver(getattr(request, "urlconf", None))).get(route, route)
    return f"/{route.lstrip('/')}"


@functools.lru_cache(maxsize=256)
def _routes_in(language: str, resolver: URLResolver) -> dict[str, str]:
    """The routes as they are in a language, by ``i18n_patterns`` or because they are translated, each with the same in the site's own."""

    join: Callable[[str, str], str] = resolver._join_route  # type: ignore[attr-defined]

    def names(language: str) -> list[str]:
        with override(language):
            return [functools.reduce(join, map(str, parts), "") for parts in _parts(resolver)]

    # Where two are the same, Django takes the first.
    return dict(reversed(list(zip(names(language), names(settings.LANGUAGE_CODE)))))


def _parts(resolver: URLResolver) -> Iterator[list[Any]]:
    """What each route consists of."""
    for pattern in resolver.url_patterns:
        if isinstance(pattern, URLResolver):
            yield from ([pattern.pattern, *parts] for parts in _parts(pattern))
        else:
            yield [pattern.pattern]


async def _respond(asked: _Asked, respond: Callable[[], Any]) -> Any:
    """The response to a request that a layer limits: what is below it responds, or the request is denied."""
    request, known = asked.request, asked.known
    if asked.limiter._lacks_rules():
        await asked.limiter._follow()
    known.update(attributes_of(await awaited(asked.attributes)))
    if asked.key is not None:
        known[KEY] = key_of(await awaited(asked.key))
    if asked.needs_user(known):
        known["user"] = await _user_later(request)
    verdict = await _decide(asked, await awaited(asked.cost))
    layer = _layer(request, verdict)
    if not verdict.allowed:
        response = _denial(verdict, await awaited(_answer(asked, verdict)))
    else:
        try:
            if verdict.delay:
                await asyncio.sleep(verdict.delay)
            response = await awaited(respond())
        except Exception as error:
            if asked.count_when is not None:
                await decide(verdict, asked.count_when, HttpResponse(status=_status_of(error)))
            raise
        finally:
            verdict._release()
        if asked.count_when is not None:
            await decide(verdict, asked.count_when, response)
    return response if layer is None else _with_limits(layer, response)


def _respond_sync(asked: _Asked, respond: Callable[[], Any]) -> Any:
    """The same, where nobody can wait."""
    request, known = asked.request, asked.known
    if asked.limiter._lacks_rules():
        asked.limiter._follow_sync()
    known.update(attributes_of(at_once(asked.attributes, "attributes")))
    if asked.key is not None:
        known[KEY] = key_of(at_once(asked.key, "by"))
    if asked.needs_user(known):
        known["user"] = _user(request)
    verdict = _decide_sync(asked, at_once(asked.cost, "cost"))
    layer = _layer(request, verdict)
    if not verdict.allowed:
        response = _denial(verdict, at_once(_answer(asked, verdict), "on_denied"))
    else:
        try:
            if verdict.delay:
                time.sleep(verdict.delay)
            response = respond()
        except Exception as error:
            if asked.count_when is not None:
                decide_sync(verdict, asked.count_when, HttpResponse(status=_status_of(error)))
            raise
        finally:
            verdict._release()
        if asked.count_when is not None:
            decide_sync(verdict, asked.count_when, response)
    return response if layer is None else _with_limits(layer, response)


async def _decide(asked: _Asked, cost: int) -> Any:
    scope = getattr(asked.request, "scope", None)
    if scope is None:
        return _decide_sync(asked, cost)
    seen = addressed_scope(scope, _asking(asked.address, asked.request))
    answer = asked.limiter._check_asgi(seen, asked.known, cost, asked.count_when is not None)
    return answer if isinstance(answer, (Verdict, Refusal)) else await answer


def _decide_sync(asked: _Asked, cost: int) -> Any:
    # Also under ASGI, where sync views run in threads: META has the server's values, with WSGI's names.
    seen = addressed_environ(asked.request.META, _asking(asked.address, asked.request))
    return asked.limiter._check_wsgi(seen, asked.known, cost, asked.count_when is not None)


def _asking(address: AddressOf, request: HttpRequest) -> AddressOf:
    """Django's functions get its request."""
    return None if address is None else lambda _: address(request)


def _layer(request: HttpRequest, verdict: Verdict | Refusal) -> Collector | None:
    """Adds to what all layers say. Returns that to the first of them, which writes the headers."""
    layer = _layers(request)
    first = None
    if layer is None:
        layer = first = Collector()
        setattr(request, _LAYER, layer)
    if isinstance(verdict, Verdict):
        layer.add(verdict)
    return first


def _layers(request: HttpRequest) -> Sender | Collector | None:
    layer: Collector | None = getattr(request, _LAYER, None)
    return _around(request) if layer is None else layer


def _around(request: HttpRequest) -> Sender | Collector | None:
    """The middleware of WSGI or ASGI around Django."""
    layer: Sender | Collector | None = getattr(request, "scope", request.META).get(LAYER)
    return layer


def verdict_of(request: HttpRequest) -> Verdict | None:
    """The verdict of all limits on a request so far."""
    layer = _layers(request)
    return None if layer is None else layer.verdict


def _answer(asked: _Asked, verdict: Verdict | Refusal) -> Any:
    """The application's own answer to a denied request, or an awaitable of it."""
    return None if asked.on_denied is None or not isinstance(verdict, Verdict) else asked.on_denied(asked.request, verdict)


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


async def _user_later(request: HttpRequest) -> str | None:
    user: Any = getattr(request, "user", None)
    if type(user) is not SimpleLazyObject:
        return _user(request)
    # It is read when it is first used, Django's own from the database, which has to be awaited here.
    if hasattr(request, "auser") and getattr(user._setupfunc, "__module__", None) == _OF_DJANGO:
        return name_of(await request.auser())
    # `auser` is still that of the session where other middleware has put a user in its place.
    return await sync_to_async(_user)(request)
