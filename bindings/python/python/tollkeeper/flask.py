"""Limits on single views of Flask.

>>> @app.post("/login")
... @limit("5/min", by="ip")
... def login(): ...
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from typing import Any, TypeVar

from flask import Request, Response, after_this_request, current_app, g, request

from . import _middleware, _routes
from ._awaited import at_once, awaited
from ._errors import UsageError
from ._identity import key_of, name_of
from ._middleware import LAYER
from ._routes import ROUTE, RouteLimit, unrouted
from ._rules import KEY, By, LimitLike, cost_of, texts
from ._tollkeeper import Collector, Limiter, Verdict

__all__ = ["Limits", "limit", "verdict_of"]

_View = TypeVar("_View", bound=Callable[..., Any])


class Limits(_routes.Limits):
    """Limits for views, with their store and settings: ``limit = Limits(store="redis://127.0.0.1:6379")``."""

    def __call__(
        self, limit: LimitLike, *, by: By = None, name: str | None = None, cost: int | Callable[[Any], Any] = 1
    ) -> Callable[[_View], _View]:
        """A decorator that limits the view it is put on, below ``@app.route``.

        :param by: an attribute such as ``"header.x-api-key|ip"`` or ``"user"`` (flask-login's, or ``g.user``); or a function of
            the request, sync or (for async views) async, that returns a key. The client's address by default.
        :param name: a name shared by several views, which then count together.
        """
        route_limit = RouteLimit(self, limit, by, name, cost)

        def decorate(view: _View) -> _View:
            if inspect.iscoroutinefunction(view):

                @functools.wraps(view)
                async def limited_async(*args: Any, **kwargs: Any) -> Any:
                    limiter, known, key, cost = _question(route_limit, view)
                    verdict, denied = _enforce(limiter, known, await awaited(key), await awaited(cost))
                    if denied is not None:
                        return denied
                    try:
                        return await view(*args, **kwargs)
                    finally:
                        verdict._release()

                return limited_async  # type: ignore[return-value]

            @functools.wraps(view)
            def limited(*args: Any, **kwargs: Any) -> Any:
                limiter, known, key, cost = _question(route_limit, view)
                verdict, denied = _enforce(limiter, known, at_once(key, "by"), at_once(cost, "cost"))
                if denied is not None:
                    return denied
                try:
                    return view(*args, **kwargs)
                finally:
                    verdict._release()

            return limited  # type: ignore[return-value]

        return decorate


#: Limits in this process's memory. ``Limits(store=...)`` is for a shared store.
limit = Limits()


def _question(route_limit: RouteLimit, view: Callable[..., Any]) -> tuple[Limiter, dict[str, Any], Any, Any]:
    """The limiter, what is known of the request, and its key and cost, which an async function may have yet to find."""
    limiter, name = route_limit.rule_for(_route(view))
    known: dict[str, Any] = {ROUTE: name}
    by = route_limit.by
    if isinstance(by, str) and "user" in by.split("|"):
        known["user"] = _user()
    return limiter, known, by(request) if callable(by) else None, cost_of(route_limit.cost, request)


def _route(view: Callable[..., Any]) -> str:
    """The route's own name, without what clients choose, such as the path and the method: each would have its own count."""
    rule = request.url_rule
    if rule is None:
        return unrouted(view)
    # These two were added by Flask.
    methods = (rule.methods or set()) - {"HEAD", "OPTIONS"}
    return f"{'-'.join(sorted(methods or rule.methods or []))}:{rule.rule}"


def _enforce(limiter: Limiter, known: dict[str, Any], key: Any, cost: int) -> tuple[Any, Response | None]:
    if key is not None:
        known[KEY] = key_of(key)
    verdict = limiter._check_wsgi(request.environ, known, cost)
    layer: Collector | None = request.environ.get(LAYER)
    if layer is None:
        layer = request.environ[LAYER] = Collector()
        after_this_request(functools.partial(_with_limits, layer))
    if isinstance(verdict, Verdict):
        layer.add(verdict)
    if not verdict.allowed:
        status, fields, body = verdict._denial(False)
        return verdict, Response(body, status=status, headers=texts(fields))
    assert isinstance(verdict, Verdict)
    if verdict.delay:
        time.sleep(verdict.delay)
    return verdict, None


def _with_limits(layer: Collector, response: Response) -> Response:
    for name, value in layer.headers():
        response.headers[name] = value
    return response


def verdict_of(request: Request) -> Verdict | None:
    """The verdict of all limits on a request so far."""
    return _middleware.verdict_of(request.environ)


def _user() -> str | None:
    if hasattr(current_app, "login_manager"):
        import flask_login  # type: ignore[import-not-found, import-untyped, unused-ignore]

        user = flask_login.current_user
        return str(user.get_id()) if user.is_authenticated else None
    if "user" not in g:
        raise UsageError(
            'a limit is by "user", and nobody has said who that is: use flask-login, set g.user before the view runs, or give '
            "by= a function of the request"
        )
    return name_of(g.user)
