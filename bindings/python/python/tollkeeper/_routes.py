"""Limits on single routes. All of them share one limiter, and so one store and one connection."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable
from typing import Any

from ._awaited import at_once, awaited
from ._counting import checked_function
from ._errors import UsageError
from ._identity import AddressOf
from ._rules import By, LimitLike, checked_cost, cost_of, lines, require_one_source, rules_of
from ._tollkeeper import Limiter

#: The attribute that says which route's limits apply to a request.
ROUTE = "route"
_LONGEST_NAME = 96


class Limits:
    """Limits for routes, with their store and settings: ``limit = Limits(store="redis://...")``, then ``@limit("5/min")``.

    Each route has its own count; a limit with a ``name`` is shared by all routes that use that name. In a shared store the
    routes' own names are used, so that all processes share the same limits. Set ``enabled`` to False in tests to limit no route.
    """

    def __init__(self, *, store: str = "memory:", enabled: bool = True, address: AddressOf = None, **settings: Any) -> None:
        self.enabled = enabled
        self._address: AddressOf = checked_function(address, "address")
        self._settings = {"store": store, **settings}
        if settings or store != "memory:":
            # Errors are raised here, not at the first request.
            Limiter.from_rules([], **self._settings)
        self._lock = threading.Lock()
        self._rules: dict[str, list[dict[str, Any]]] = {}
        self._made: Limiter | None = None

    @property
    def limiter(self) -> Limiter:
        """The limiter, created when first needed."""
        with self._lock:
            return self._limiter()

    def _limiter(self) -> Limiter:
        if self._made is None:
            self._made = Limiter.from_rules(self._all(), **self._given())
        return self._made

    def _given(self) -> dict[str, Any]:
        """The settings of the limiter."""
        return self._settings

    def _is_enabled(self) -> bool:
        return self.enabled

    def _address_of(self) -> AddressOf:
        return self._address

    def _all(self) -> list[dict[str, Any]]:
        return [rule for rules in self._rules.values() for rule in rules]


class RouteLimit:
    """One ``limit(...)``."""

    def __init__(
        self,
        limits: Limits,
        limit: LimitLike | None,
        *,
        by: By,
        limiter: Limiter | None = None,
        name: str | None,
        attributes: Callable[[Any], Any] | None = None,
        cost: Any = 1,
        exempt: Callable[[Any], Any] | None = None,
        count_when: Callable[[Any], Any] | None = None,
        on_denied: Callable[..., Any] | None = None,
    ) -> None:
        require_one_source(limit, limiter, by, attributes, name is not None)
        self.limits = limits
        self.by = by
        self.attributes: Callable[[Any], Any] | None = checked_function(attributes, "attributes")
        self.cost = checked_cost(cost)
        self._exempt: Callable[[Any], Any] | None = checked_function(exempt, "exempt")
        self.count_when: Callable[[Any], Any] | None = checked_function(count_when, "count_when")
        self.on_denied: Callable[..., Any] | None = checked_function(on_denied, "on_denied")
        #: With rules of its own.
        self.limiter = limiter
        self._limit = [] if limit is None else lines(limit)
        self._name = name
        self._known: dict[str, str] = {}
        if limiter is not None:
            #: Whether requests hold slots until they end. Rules of a limiter can change.
            self.holds_slots = True
            return
        # Errors are raised here, not at the route's first request.
        rules = rules_of(self._limit, by, "check" if name is None else name, identify=limits._given().get("identify"))
        self.holds_slots = any(rule.get("algorithm") == "concurrency" for rule in rules)
        if name is not None:
            # So that a count can be looked at and reset before this process has seen a request of the route.
            self._register(name)

    async def is_exempt(self, request: Any) -> bool:
        """Whether a request is not limited."""
        return not self.limits._is_enabled() or self._exempt is not None and bool(await awaited(self._exempt(request)))

    def is_exempt_sync(self, request: Any) -> bool:
        """The same, where nobody can wait."""
        return not self.limits._is_enabled() or self._exempt is not None and bool(at_once(self._exempt(request), "exempt"))

    def limiter_for(self, route: str) -> tuple[Limiter, dict[str, Any]]:
        """The limiter, and by which attribute it knows the rules of a route."""
        if self.limiter is not None:
            return self.limiter, {}
        name = self._known.get(route)
        if name is None:
            name = self._register(route)
        limiter = self.limits._made
        return (limiter if limiter is not None else self.limits.limiter), {ROUTE: name}

    def told(self, request: Any) -> tuple[Any, Any, Any]:
        """What the functions of the application say of a request, or awaitables of that: its attributes, key and cost."""
        attributes = {} if self.attributes is None else self.attributes(request)
        return attributes, self.by(request) if callable(self.by) else None, cost_of(self.cost, request)

    def needs_user(self, known: dict[str, Any]) -> bool:
        """Whether the framework has to say who the user is."""
        if self.limiter is not None:
            return "user" not in known and self.limiter._needs_user()
        return isinstance(self.by, str) and "user" in self.by.split("|")

    def _register(self, route: str) -> str:
        limits = self.limits
        text = "+".join(str(line).replace(" ", "-") for line in self._limit)
        name = rule_name(self._name or f"{route}:{text}")
        with limits._lock:
            rules = rules_of(self._limit, self.by, name, {ROUTE: name}, limits._given().get("identify"))
            if limits._rules.get(name) != rules:
                taken = {rule["name"] for rule in limits._all()}
                for twice in (rule["name"] for rule in rules if rule["name"] in taken):
                    raise UsageError(f"two different limits are called {twice!r}; give one of them another name")
                if limits._made is not None:
                    limits._made.replace_rules([*limits._all(), *rules])
                # Last: a limit that cannot be used would fail all the others.
                limits._rules[name] = rules
        self._known[route] = name
        return name


def require_view(view: Any, instead: str) -> None:
    """Refuses what cannot be decorated: a blueprint, or a class, would not be limited."""
    if not callable(view) or isinstance(view, type):
        raise UsageError(f"@limit(...) decorates a view function, not {view!r}; use {instead}")


def unrouted(view: Callable[..., Any]) -> str:
    """What stands for the route of a view that has none, such as a handler of errors."""
    return getattr(view, "__name__", type(view).__name__)


def rule_name(text: str) -> str:
    """A text as the name of a rule, which goes into headers and keys."""
    name = re.sub(r"[^A-Za-z0-9._:/@-]+", "-", re.sub(r"[{}<>]", "", text)).strip("-")
    if len(name) <= _LONGEST_NAME and text.isascii():
        return name or "limit"
    # What is left of other alphabets is the same for all.
    return f"{name[: _LONGEST_NAME - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}".lstrip("-")
