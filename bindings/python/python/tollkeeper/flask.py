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

from flask import Request, Response, after_this_request, current_app, g, make_response, request

from . import _denied, _middleware, _routes
from ._awaited import at_once, awaited
from ._counting import decide_sync
from ._errors import UsageError
from ._identity import addressed_environ, attributes_of, key_of, name_of
from ._middleware import LAYER
from ._routes import RouteLimit, require_view, unrouted
from ._rules import KEY, By, LimitLike, texts
from ._tollkeeper import Collector, Limiter, Refusal, Verdict

__all__ = ["Limits", "limit", "verdict_of"]

_View = TypeVar("_View", bound=Callable[..., Any])
_INSTEAD = (
    'blueprint.before_request(limit("5/min", name="all")(lambda: None)) for a blueprint, and decorators = [limit("5/min")] in a MethodView'
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
        attributes: Callable[[Request], Any] | None = None,
        cost: int | Callable[[Any], Any] = 1,
        exempt: Callable[[Request], Any] | None = None,
        count_when: Callable[[Response], Any] | None = None,
        on_denied: Callable[[Request, Verdict], Any] | None = None,
    ) -> Callable[[_View], _View]:
        """A decorator that limits the view it is put on, below ``@app.route``.

        :param by: an attribute such as ``"header.x-api-key|ip"`` or ``"user"`` (flask-login's, or ``g.user``); or a function of
            the request, sync or (for async views) async, that returns a key. The client's address by default.
        :param limiter: a ``Limiter`` with rules of its own, instead of ``limit``.
        :param name: a name shared by several views, which then count together.
        :param attributes: a function of the request, async only for async views, that returns a mapping of attributes for the rules of
            ``limiter``, such as the customer's plan.
        :param exempt: a function of the request, async only for async views, that tells whether it is not limited: ``lambda request:
            request.method == "GET"``.
        :param count_when: a function of the response that tells whether the request counts: ``lambda response: response.status_code
            == 401`` counts failed logins only.
        :param on_denied: answers denied requests: a function of the request and the verdict, async only for async views, that returns
            what a view may return, or None for the usual answer. Status and headers of the denial are added, unless it has others.
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
            require_view(view, _INSTEAD)
            if inspect.iscoroutinefunction(view):

                @functools.wraps(view)
                async def limited_async(*args: Any, **kwargs: Any) -> Any:
                    if await route_limit.is_exempt(request):
                        return await view(*args, **kwargs)
                    attributes, key, cost = route_limit.told(request)
                    verdict = _enforce(route_limit, view, await awaited(attributes), await awaited(key), await awaited(cost))
                    if not verdict.allowed:
                        return _denial(verdict, await awaited(_answer(route_limit, verdict)))
                    try:
                        return await view(*args, **kwargs)
                    finally:
                        verdict._release()

                return limited_async  # type: ignore[return-value]

            @functools.wraps(view)
            def limited(*args: Any, **kwargs: Any) -> Any:
                if route_limit.is_exempt_sync(request):
                    return view(*args, **kwargs)
                attributes, key, cost = route_limit.told(request)
                verdict = _enforce(
                    route_limit, view, at_once(attributes, "attributes"), at_once(key, "by"), at_once(cost, "cost")
                )
                if not verdict.allowed:
                    return _denial(verdict, at_once(_answer(route_limit, verdict), "on_denied"))
                try:
                    return view(*args, **kwargs)
                finally:
                    verdict._release()

            return limited  # type: ignore[return-value]

        return decorate


#: Limits in this process's memory. ``Limits(store=...)`` is for a shared store.
limit = Limits()


def _route(view: Callable[..., Any]) -> str:
    """The route's own name, without what clients choose, such as the path and the method: each would have its own count."""
    rule = request.url_rule
    if rule is None:
        return unrouted(view)
    # These two were added by Flask.
    methods = (rule.methods or set()) - {"HEAD", "OPTIONS"}
    return f"{'-'.join(sorted(methods or rule.methods or []))}:{rule.rule}"


def _enforce(route_limit: RouteLimit, view: Callable[..., Any], attributes: Any, key: Any, cost: int) -> Verdict | Refusal:
    limiter, known = route_limit.limiter_for(_route(view))
    if limiter._lacks_rules():
        limiter._follow_sync()
    known.update(attributes_of(attributes))
    if key is not None:
        known[KEY] = key_of(key)
    if route_limit.needs_user(known):
        known["user"] = _user()
    count_when = route_limit.count_when
    seen = addressed_environ(request.environ, route_limit.limits._address_of())
    verdict = limiter._check_wsgi(seen, known, cost, count_when is not None)
    layer: Collector | None = request.environ.get(LAYER)
    if layer is None:
        layer = request.environ[LAYER] = Collector()
        after_this_request(functools.partial(_with_limits, layer))
    if isinstance(verdict, Verdict):
        layer.add(verdict)
    if verdict.allowed:
        assert isinstance(verdict, Verdict)
        if count_when is not None:
            # Also after an error, with the response that it became.
            after_this_request(functools.partial(_count, [verdict], count_when))
        if verdict.delay:
            time.sleep(verdict.delay)
    return verdict


def _count(undecided: list[Verdict], count_when: Callable[[Response], Any], response: Response) -> Response:
    # Flask calls this again for the response to an error of this call.
    if undecided:
        decide_sync(undecided.pop(), count_when, response)
    return response


def _answer(route_limit: RouteLimit, verdict: Verdict | Refusal) -> Any:
    """The application's own answer to a denied request, or an awaitable of it."""
    if route_limit.on_denied is None or not isinstance(verdict, Verdict):
        return None
    return route_limit.on_denied(request, verdict)


def _denial(verdict: Verdict | Refusal, answer: Any) -> Response:
    status, fields, body = verdict._denial(False)
    if answer is None:
        return Response(body, status=status, headers=texts(fields))
    response = make_response(answer)
    _denied.complete(response, status, texts(fields))
    return response


def _with_limits(layer: Collector, response: Response) -> Response:
    for name, value in _denied.without_own(response, layer.headers()):
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
