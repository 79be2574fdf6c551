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
from ._errors import TollkeeperError, UsageError
from ._identity import addressed_environ, key_of, name_of
from ._routes import RouteLimit
from ._rules import KEY, texts
from ._tollkeeper import Collector, Limiter, Refusal, Verdict

__all__ = ["AnonRateThrottle", "RateThrottle", "ScopedRateThrottle", "UserRateThrottle"]

#: Limits by address, which say who a client is, by the settings that tell.
_addresses: dict[str, Limiter] = {}
_OF_ADDRESSES = ("trusted_proxies", "client_address", "ipv6_prefix")
#: What stands for a key without a letter.
_EMPTY = "''"
#: By class, scope and rate: the framework makes its throttles anew for each request.
_made: dict[tuple[type, Any, str], RouteLimit] = {}


class RateThrottle(SimpleRateThrottle):
    """Limits each user, or the client's address if nobody is logged in, by the rate of its ``scope``: ``"5/min burst 10"``, or a list of
    rates that are enforced together. Store and settings are those of ``settings.TOLLKEEPER``.

    A subclass may define ``get_cache_key(request, view)``, which returns what identifies a client instead, or None for no limit. It may
    ask ``super().get_cache_key``, and ``get_ident`` for the client's address. A subclass may define ``get_ident(request)``, too.
    """

    #: With a store and settings of its own, instead of those of ``settings.TOLLKEEPER``.
    limits: django.Limits | None = None
    #: Not only a text, as in the framework.
    rate: Any
    _verdict: Verdict | None = None

    def parse_rate(self, rate: Any) -> Any:
        """Nothing: the library reads rates. A subclass may return a number of requests, and the seconds in which they may come."""
        return None, None

    def allow_request(self, request: Request, view: Any) -> bool:
        if self.rate is None or not self._limits()._is_enabled():
            return True
        known: dict[str, Any] = {}
        if self._names_clients():
            key = key_of(self.get_cache_key(request, view))
            # One in the framework, and absent in rules.
            known[KEY] = _EMPTY if key == "" else key
        else:
            known["user"] = name_of(request.user)
        # Some ask throttles outside of the framework's views.
        plain: Any = getattr(request, "_request", request)
        verdict = self._decided(plain, known)
        django._layer(plain, verdict)
        layer = django._layers(plain)
        if isinstance(layer, Collector) and django._around(plain) is None:
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

    def get_ident(self, request: Request) -> str:
        """The client's address, as the settings trust it. The framework's own believes any ``X-Forwarded-For``."""
        settings = {name: value for name, value in self._limits()._given().items() if name in _OF_ADDRESSES}
        place = repr(settings)
        limiter = _addresses.get(place)
        if limiter is None:
            limiter = _addresses[place] = Limiter.from_rules(["1/s by ip"], **settings)
        # At no cost: it only says whose count this would be.
        verdict = limiter._check_wsgi(self._environ(getattr(request, "_request", request)), None, 0)
        if isinstance(verdict, Refusal):
            raise _refused(verdict)
        return verdict.rules[0].key

    def get_cache_key(self, request: Request, view: Any) -> str | None:
        """For subclasses that add something to it."""
        user = name_of(request.user)
        return f"ip:{self.get_ident(request)}" if user is None else f"user:{user}"

    def _names_clients(self) -> bool:
        kind = type(self)
        has_keys = kind.get_cache_key not in (RateThrottle.get_cache_key, AnonRateThrottle.get_cache_key)
        # The framework's keys are made of it.
        return has_keys or kind.get_ident is not RateThrottle.get_ident

    def _decided(self, request: Any, known: dict[str, Any]) -> Verdict | Refusal:
        limiter, rules = self._limit().limiter_for(self._name())
        return limiter._check_wsgi(self._environ(request), {**known, **rules})

    def _limit(self) -> RouteLimit:
        rate = self._rate()
        place = type(self), self.scope, str(rate)
        limit = _made.get(place)
        # Tests may put others in their place.
        if limit is None or limit.limits is not self._limits():
            by = self.get_cache_key if self._names_clients() else "user|ip"
            try:
                limit = RouteLimit(self._limits(), rate, by=by, name=self._name())
            except TollkeeperError as error:
                raise type(error)(f"{type(self).__name__}: the rate {rate!r} of scope {self.scope!r}: {error}") from None
            if limit.holds_slots:
                raise UsageError(f"{rate!r}: a throttle does not see when a request ends; use @limit(...) of tollkeeper.django")
            _made[place] = limit
        return limit

    def _environ(self, request: Any) -> Any:
        """What is known of a request of Django, with the client's address from the settings."""
        return addressed_environ(request.META, django._asking(self._limits()._address_of(), request))

    def _limits(self) -> django.Limits:
        return django.limit if self.limits is None else self.limits

    def _rate(self) -> Any:
        count, seconds = getattr(self, "num_requests", None), getattr(self, "duration", None)
        if count is None:
            return self.rate
        if seconds is None:
            raise UsageError(f'{type(self).__name__}: num_requests is set without duration; set rate instead, such as "{count}/min"')
        return f"{count}/{seconds}s"

    def _name(self) -> str:
        return self.scope or type(self).__name__


class AnonRateThrottle(RateThrottle):
    """Limits requests without a user by the client's address."""

    scope = "anon"

    def allow_request(self, request: Request, view: Any) -> bool:
        # A subclass with keys of its own limits those whom it names, as in the framework.
        is_exempt = not self._names_clients() and name_of(request.user) is not None
        return is_exempt or super().allow_request(request, view)

    def get_cache_key(self, request: Request, view: Any) -> str | None:
        """The same."""
        return None if name_of(request.user) is not None else super().get_cache_key(request, view)


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
        self.num_requests, self.duration = self.parse_rate(self.rate)
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
