"""Limits on single routes of FastAPI.

>>> @app.post("/login", dependencies=[Depends(limit("5/min", by="ip"))])

The 429 is in the OpenAPI document. For headers on every response, also of endpoints that return a ``Response`` themselves, add
``tollkeeper.asgi.RateLimitMiddleware``: limits of routes join its headers.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Callable, Optional, Union

import fastapi.openapi.utils
from fastapi import Depends, Response
from starlette.exceptions import HTTPException, WebSocketException
from starlette.requests import HTTPConnection, Request
from starlette.routing import Mount

from . import _denied, _routes
from ._awaited import awaited
from ._counting import COUNTING, Counting, CountingMiddleware, ResponseHead
from ._errors import UsageError
from ._identity import addressed_scope, attributes_of, key_of
from ._middleware import LAYER, verdict_of
from ._routes import RouteLimit
from ._rules import KEY, By, LimitLike, cost_of, texts
from ._tollkeeper import Collector, Limiter, Refusal, Verdict
from .asgi import DECIDED, TRY_AGAIN_LATER, user_of

__all__ = ["RESPONSES", "CountingMiddleware", "Limits", "RateLimitExceeded", "limit", "verdict_of"]

#: The 429 of a limited operation in OpenAPI. Added automatically; for ``responses=`` if a route is documented by hand.
RESPONSES: dict[Union[int, str], dict[str, Any]] = {
    429: {
        "description": "Too many requests: a limit is reached",
        "headers": {
            "Retry-After": {"description": "Seconds until the same request passes", "schema": {"type": "integer"}},
            "RateLimit-Policy": {"description": "The limits that hold", "schema": {"type": "string"}},
            "RateLimit": {"description": "What is left of them", "schema": {"type": "string"}},
        },
        "content": {
            "application/problem+json": {
                "schema": {
                    "type": "object",
                    "title": "Problem",
                    "properties": {
                        "type": {"type": "string"},
                        "title": {"type": "string"},
                        "status": {"type": "integer"},
                        "detail": {"type": "string"},
                        "violated-policies": {"type": "array", "items": {"type": "string"}},
                        "retry_after_ms": {"type": "integer", "nullable": True},
                    },
                }
            }
        },
    }
}


_MARK = "__tollkeeper_limit__"

_NO_USER = (
    "give by= the dependency that authenticates, such as by=current_user, or set request.state.user in a dependency that comes "
    "before the limit or in middleware"
)


class RateLimitExceeded(HTTPException):
    """A denied request. Answered with a problem document unless the application has a handler for it."""

    def __init__(self, verdict: Union[Verdict, Refusal], limits: bool) -> None:
        status, headers, body = verdict._denial(limits)
        super().__init__(status_code=status, detail=body.decode("utf-8", "replace"), headers=dict(texts(headers)))
        self.verdict = verdict
        self.body = body


class _Answered(Exception):
    """A denied request that the application answers itself. Not an ``HTTPException``: its handler for their status would answer instead."""

    def __init__(self, response: Response) -> None:
        super().__init__("a denied request")
        self.response = response


async def _given(_request: Request, error: Exception) -> Response:
    assert isinstance(error, _Answered)
    return error.response


async def _answer(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RateLimitExceeded)
    return Response(error.body, status_code=error.status_code, headers=dict(error.headers or {}))


class Limits(_routes.Limits):
    """Limits for routes, with their store and settings: ``limit = Limits(store="redis://127.0.0.1:6379")``.

    The settings are those of ``Limiter.from_rules``.
    """

    def __call__(
        self,
        limit: Optional[LimitLike] = None,
        *,
        by: By = None,
        limiter: Optional[Limiter] = None,
        name: Optional[str] = None,
        attributes: Optional[Callable[..., Any]] = None,
        cost: Union[int, Callable[[HTTPConnection], Any]] = 1,
        exempt: Optional[Callable[[Any], Any]] = None,
        count_when: Optional[Callable[[ResponseHead], Any]] = None,
        on_denied: Optional[Callable[[Request, Verdict], Any]] = None,
    ) -> Callable[..., Any]:
        """A dependency that limits the route it is used on: ``Depends(limit("5/min", by="ip"))``.

        :param by: an attribute such as ``"header.x-api-key|ip"`` or ``"user"``; a dependency, whose value names the client; or a
            function of the request. The client's address by default.
        :param limiter: a ``Limiter`` with rules of its own, instead of ``limit``.
        :param name: a name shared by several routes, which then count together.
        :param attributes: a dependency, or a function of the request, sync or async, that returns a mapping of attributes for the rules of
            ``limiter``, such as the customer's plan.
        :param exempt: a function of the request, sync or async, that tells whether it is not limited: ``lambda request:
            request.headers.get("x-internal") == SECRET``.
        :param count_when: a function of the response, sync or async, that tells whether the request counts: ``lambda response:
            response.status_code == 401`` counts failed logins only. It needs ``app.add_middleware(CountingMiddleware)``.
        :param on_denied: answers denied requests: a function of the request and the verdict, sync or async, that returns a response, or
            None for the usual answer. Status and headers of the denial are added, unless it has others.
        """
        _document()
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

        async def dependency(connection: HTTPConnection, response: Response, **values: Any) -> Optional[Verdict]:
            if await route_limit.is_exempt(connection):
                return None
            return await _enforce(route_limit, connection, response, values)

        _ask_for(dependency, by=by, attributes=attributes)
        return _dependency(_holding(dependency) if route_limit.holds_slots else dependency)


#: Limits in this process's memory. ``Limits(store=...)`` is for a shared store.
limit = Limits()


def _marked(dependency: Callable[..., Any]) -> Callable[..., Any]:
    """Marks it, so that it is found when a route is documented."""
    setattr(dependency, _MARK, True)
    return dependency


def _dependency(enforce: Callable[..., Any]) -> Callable[..., Any]:
    # What Python says when it is used as a decorator, as limits of other packages are, names what to write.
    enforce.__qualname__ = "Depends(limit(...))"
    return _marked(enforce)


def _holding(enforce: Callable[..., Awaitable[Optional[Verdict]]]) -> Callable[..., AsyncIterator[Optional[Verdict]]]:
    """The same dependency, which holds slots until FastAPI is done with the request."""

    async def dependency(**given: Any) -> AsyncIterator[Optional[Verdict]]:
        verdict = await enforce(**given)
        try:
            yield verdict
        finally:
            if verdict is not None:
                verdict._release()

    # FastAPI reads there what to give.
    dependency.__signature__ = inspect.signature(enforce)  # type: ignore[attr-defined]
    return dependency


def _ask_for(dependency: Callable[..., Any], **functions: Any) -> None:
    """Lets FastAPI give the values of those functions that are normal dependencies: they may have dependencies, and each is evaluated
    once per request."""
    signature = inspect.signature(dependency)
    own = [parameter for parameter in signature.parameters.values() if parameter.kind is not inspect.Parameter.VAR_KEYWORD]
    asked = [
        inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=Depends(function), annotation=Any)
        for option, function in functions.items()
        if callable(function) and not _takes_request(function)
    ]
    # FastAPI reads there what to give.
    dependency.__signature__ = signature.replace(parameters=[*own, *asked])  # type: ignore[attr-defined]


def _takes_request(function: Callable[..., Any]) -> bool:
    """Whether it is a plain function such as ``lambda request: request.headers["x-tenant"]``."""
    parameters = list(inspect.signature(function).parameters.values())
    return len(parameters) == 1 and parameters[0].annotation is inspect.Parameter.empty and (
        parameters[0].default is inspect.Parameter.empty
    )


async def _enforce(
    route_limit: RouteLimit, connection: HTTPConnection, response: Response, values: dict[str, Any]
) -> Verdict:
    scope = connection.scope
    if route_limit.limiter is not None and route_limit.limiter._lacks_rules():
        await route_limit.limiter._follow()
    known: dict[str, Any] = {}
    by, attributes = route_limit.by, route_limit.attributes
    if attributes is not None:
        found = values["attributes"] if "attributes" in values else await awaited(attributes(connection))
        known.update(attributes_of(found))
    if callable(by):
        known[KEY] = key_of(values["by"] if "by" in values else await awaited(by(connection)))
    if route_limit.needs_user(known):
        known["user"] = user_of(scope, _NO_USER)
    limiter, rules = route_limit.limiter_for(_route_of(scope))
    known.update(rules)
    cost = await awaited(cost_of(route_limit.cost, connection))
    count_when = route_limit.count_when
    counting = None if count_when is None else _counting(scope)
    answer = limiter._check_asgi(addressed_scope(scope, route_limit.limits._address_of()), known, cost, counting is not None)
    verdict: Union[Verdict, Refusal] = answer if isinstance(answer, DECIDED) else await answer
    layer = scope.get(LAYER)
    if isinstance(verdict, Verdict):
        if layer is None:
            layer = scope[LAYER] = Collector()
        elif isinstance(layer, Collector):
            # What another dependency wrote may be in another style.
            for name, _ in layer.headers():
                del response.headers[name]
        layer.add(verdict)
    if not verdict.allowed:
        if scope["type"] == "websocket":
            raise WebSocketException(code=TRY_AGAIN_LATER, reason="rate limited")
        own = None
        if route_limit.on_denied is not None and isinstance(verdict, Verdict):
            own = await awaited(route_limit.on_denied(connection, verdict))
        error = RateLimitExceeded(verdict, limits=False)
        if isinstance(layer, Collector):
            error.headers = {**dict(error.headers or {}), **dict(layer.headers())}
        handlers = scope.get("starlette.exception_handlers")
        if handlers:
            handlers[0].setdefault(RateLimitExceeded, _answer)
            handlers[0].setdefault(_Answered, _given)
        raise error if own is None else _Answered(_completed(own, error))
    assert isinstance(verdict, Verdict)
    if counting is not None and count_when is not None:
        counting.add(verdict, count_when)
    if isinstance(layer, Collector):
        for name, value in layer.headers():
            response.headers[name] = value
    if verdict.delay:
        await asyncio.sleep(verdict.delay)
    return verdict


def _completed(response: Any, error: RateLimitExceeded) -> Response:
    """The application's own answer to a denied request."""
    _denied.require(response, Response)
    answer: Response = response
    _denied.complete(answer, error.status_code, list((error.headers or {}).items()))
    return answer


def _counting(scope: Any) -> Counting:
    counting: Optional[Counting] = scope.get(COUNTING)
    if counting is None:
        raise UsageError(
            "count_when: a dependency does not see responses; add tollkeeper.fastapi.CountingMiddleware: "
            "app.add_middleware(CountingMiddleware)"
        )
    return counting


def _route_of(scope: Any) -> str:
    """The route's own name: the same in every process."""
    route: Any = scope.get("route")
    within = scope.get("fastapi")
    included = within.get("effective_route_context") if isinstance(within, dict) else None
    if included is not None and getattr(included, "original_route", None) is route:
        # In newer versions of FastAPI the route of an included router does not have the prefix.
        route = getattr(included, "starlette_route", None) or included
    path = getattr(route, "path", None) or scope["path"]
    methods = sorted(getattr(route, "methods", None) or ["WS"])
    return f"{'-'.join(methods)}:{_mounted_at(scope, route)}{path}"


def _mounted_at(scope: Any, route: Any) -> str:
    """Where the route's application is mounted, with the names of parameters: each value would have its own count."""
    prefix: str = scope.get("root_path", "")
    named: str = scope.get("app_root_path", prefix)
    # A value may also be written in several ways, or be replaced by one of the route that has the same name.
    routes, rest = getattr(scope.get("router"), "routes", ()), prefix[len(named) :]
    while rest:
        matches = ((mount, mount.path_regex.match(f"{rest}/")) for mount in routes if isinstance(mount, Mount))
        mount, found = next((match for match in matches if match[1]), (None, None))
        if mount is None or found is None:
            return named + _with_names(rest, scope, route)
        named += mount.path
        routes, rest = mount.routes, f"/{found['path']}".rstrip("/")
    return named


def _with_names(prefix: str, scope: Any, route: Any) -> str:
    """The same where the application is not mounted by Starlette alone, by the values of parameters."""
    own = getattr(route, "param_convertors", {})
    for name, value in scope.get("path_params", {}).items():
        if name not in own:
            before, found, after = f"{prefix}/".rpartition(f"/{value}/")
            prefix = f"{before}/{name}/{after}"[:-1] if found else prefix
    return prefix


def _document() -> None:
    """Makes FastAPI document the 429 of limited operations. A dependency cannot do that, and FastAPI has no hook for it,
    so the function that documents a path is wrapped. Nothing else changes, and a route's own documentation of 429 stays."""
    original = getattr(fastapi.openapi.utils, "get_openapi_path", None)
    if original is None or hasattr(original, _MARK):
        return

    def get_openapi_path(*args: Any, **kwargs: Any) -> Any:
        described = original(*args, **kwargs)
        route = kwargs.get("route") or (args[0] if args else None)
        if described and route is not None and _is_limited(getattr(route, "dependant", None)):
            for operation in described[0].values():
                for status, response in RESPONSES.items():
                    operation.setdefault("responses", {}).setdefault(str(status), response)
        return described

    setattr(fastapi.openapi.utils, "get_openapi_path", _marked(get_openapi_path))


def _is_limited(dependant: Any) -> bool:
    if dependant is None:
        return False
    if hasattr(getattr(dependant, "call", None), _MARK):
        return True
    return any(_is_limited(inner) for inner in getattr(dependant, "dependencies", ()))
