"""Throttles for Django REST framework, with the names and settings of its own.

>>> REST_FRAMEWORK = {
...     "DEFAULT_THROTTLE_CLASSES": ["tollkeeper.rest_framework.AnonRateThrottle", "tollkeeper.rest_framework.UserRateThrottle"],
...     "DEFAULT_THROTTLE_RATES": {"anon": "100/day", "user": ["10/s burst 20", "1000/day"]},
... }
>>> TOLLKEEPER = {"store": "redis://127.0.0.1:6379"}

The framework answers a denied request, with 429 and the exact ``Retry-After``. All responses of a view have the limit headers.
"""

from __future__ import annotations

import json
import time
from typing import Any

from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle

from . import django
from ._errors import UsageError
from ._identity import addressed_environ, key_of, name_of
from ._routes import RouteLimit
from ._rules import KEY, texts
from ._tollkeeper import Refusal, Verdict

__all__ = ["AnonRateThrottle", "RateThrottle", "ScopedRateThrottle", "UserRateThrottle"]

#: By class, scope and rate: the framework makes its throttles anew for each request.
_made: dict[tuple[type, Any, str], RouteLimit] = {}


class RateThrottle(SimpleRateThrottle):
    """Limits each user, or the client's address if nobody is logged in, by the rate of its ``scope``: ``"5/min burst 10"``, or a list of
    rates that are enforced together. Store and settings are those of ``settings.TOLLKEEPER``.

    A subclass may define ``get_cache_key(request, view)``, which returns what identifies a client instead, or None for no limit.
    """

    _verdict: Verdict | None = None

    def parse_rate(self, rate: Any) -> Any:
        """Nothing: the library reads rates."""
        return None, None

    def allow_request(self, request: Request, view: Any) -> bool:
        if self.rate is None or not django.limit._is_enabled():
            return True
        known: dict[str, Any] = {}
        if self._names_clients():
            known[KEY] = key_of(self.get_cache_key(request, view))
        else:
            known["user"] = name_of(request.user)
        # Some ask throttles outside of the framework's views.
        plain: Any = getattr(request, "_request", request)
        verdict = self._decided(plain, known)
        layer, _ = django._layer(plain, verdict)
        # The view adds these to its response, whoever makes it.
        getattr(view, "headers", {}).update(layer.headers())
        if isinstance(verdict, Refusal):
            raise _refused(verdict)
        self._verdict = verdict
        if verdict.delay:
            time.sleep(verdict.delay)
        return verdict.allowed

    def wait(self) -> float | None:
        """After how many seconds the same request passes; None if it never does."""
        return None if self._verdict is None else self._verdict.retry_after

    def _names_clients(self) -> bool:
        return type(self).get_cache_key is not SimpleRateThrottle.get_cache_key

    def _decided(self, request: Any, known: dict[str, Any]) -> Verdict | Refusal:
        limiter, rules = self._limit().limiter_for(self._name())
        address = django.limit._address_of()
        seen = addressed_environ(request.META, django._asking(address, request))
        return limiter._check_wsgi(seen, {**known, **rules})

    def _limit(self) -> RouteLimit:
        rate: Any = self.rate
        place = type(self), self.scope, str(rate)
        limit = _made.get(place)
        if limit is None:
            by = self.get_cache_key if self._names_clients() else "user|ip"
            limit = RouteLimit(django.limit, rate, by=by, name=self._name())
            if limit.holds_slots:
                raise UsageError(f"{rate!r}: a throttle does not see when a request ends; use @limit(...) of tollkeeper.django")
            _made[place] = limit
        return limit

    def _name(self) -> str:
        return self.scope or type(self).__name__


class AnonRateThrottle(RateThrottle):
    """Limits requests without a user by the client's address."""

    scope = "anon"

    def allow_request(self, request: Request, view: Any) -> bool:
        return name_of(request.user) is not None or super().allow_request(request, view)


class UserRateThrottle(RateThrottle):
    """Limits each user, and requests without one by the client's address."""

    scope = "user"


class ScopedRateThrottle(RateThrottle):
    """Limits the views that have a ``throttle_scope``, those with the same one together."""

    scope_attr = "throttle_scope"

    def __init__(self) -> None:
        """Without a rate, which is known when the view is."""

    def allow_request(self, request: Request, view: Any) -> bool:
        self.scope = getattr(view, self.scope_attr, None)
        if not self.scope:
            return True
        self.rate = self.get_rate()
        return super().allow_request(request, view)


def _refused(refusal: Refusal) -> APIException:
    """What is no denial: a request that states its client in two ways, or too many that wait for the store."""
    status, fields, body = refusal._denial()
    problem = json.loads(body)
    error = APIException(problem.get("detail") or problem["title"])
    error.status_code = status
    wait = dict(texts(fields)).get("retry-after")
    if wait is not None:
        # The framework makes the header of it.
        error.wait = int(wait)  # type: ignore[attr-defined]
    return error
