"""What the ASGI and the WSGI middleware have in common: their parameters, and what each request costs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from ._counting import ResponseHead, checked_function
from ._errors import TollkeeperWarning
from ._exempt import exemption
from ._identity import AddressOf
from ._rules import By, LimitLike, checked_cost, cost_of, require_one_source, rules_of
from ._tollkeeper import Collector, Limiter, ManualClock, Sender, Verdict

_App = TypeVar("_App")
#: An ASGI scope, or a WSGI environment.
_Request = TypeVar("_Request")

#: Where inner layers find the outermost one, so that all limits are in one set of headers.
LAYER = "tollkeeper"


def verdict_of(request: Mapping[str, Any]) -> Verdict | None:
    """The verdict of all limits on a request so far: of an ASGI scope, a Starlette or FastAPI request, or a WSGI environment."""
    layer: Sender | Collector | None = request.get(LAYER)
    return None if layer is None else layer.verdict


class Middleware(Generic[_App, _Request]):
    """Limits all requests by one limit, or by the rules of a limiter.

    :param limit: ``"100/min burst 20"``, a ``Quota``, or several of them.
    :param by: what identifies clients: an attribute such as ``"header.x-api-key|ip"`` or ``"user"``, or a function of
        the scope or environment that returns a key (None: not limited); it may be async in ASGI. The client's address by default.
    :param limiter: a ``Limiter`` with rules of its own, instead of ``limit``.
    :param name: the name of the limit in headers and in the store.
    :param store: ``"memory:"`` (each process counts separately) or ``"redis://..."`` (all count together).
    :param attributes: a function of the scope or environment that returns a mapping of attributes for the rules of ``limiter``, such as
        the customer's plan; it may be async in ASGI.
    :param address: a function of the scope or environment that returns the client's address, or None to use the server's; needed
        behind a Unix socket, for example.
    :param exempt: paths that are not limited, such as ``/healthz`` or ``/static/*``, or a function of the scope or environment; it may
        be async in ASGI.
    :param cost: what a request costs, or a function of the scope or environment; it may be async in ASGI.
    :param count_when: a function of the response that tells whether the request counts: ``lambda response: response.status_code >= 400``
        counts failures only. It may be async in ASGI.
    :param on_denied: answers denied requests: a function of the scope or environment and the verdict that returns an ASGI or WSGI
        application, such as a response of the framework, or None for the usual answer; it may be async in ASGI. Status and headers of
        the denial are added, unless the response has others.
    :param timeout: how long Redis may take, in seconds; the others, such as ``clock`` for tests, are settings of
        ``Limiter.from_rules`` as well.
    """

    #: Where a request has its path.
    _path: str

    def __init__(
        self,
        app: _App,
        limit: LimitLike | None = None,
        *,
        by: By = None,
        limiter: Limiter | None = None,
        name: str = "requests",
        store: str = "memory:",
        attributes: Callable[[_Request], Any] | None = None,
        address: AddressOf = None,
        exempt: Iterable[str] | Callable[[_Request], Any] = (),
        cost: int | Callable[[_Request], Any] = 1,
        count_when: Callable[[ResponseHead], Any] | None = None,
        on_denied: Callable[[_Request, Verdict], Any] | None = None,
        # By name, because type checkers do not follow **settings through add_middleware.
        timeout: float | str | None = None,
        max_keys: int | None = None,
        namespace: str | None = None,
        trusted_proxies: Iterable[str] | None = None,
        client_address: str | None = None,
        ipv6_prefix: int | None = None,
        headers: str | None = None,
        identify: Mapping[str, str] | None = None,
        deny_status: int | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        settings: dict[str, Any] = {
            "timeout": timeout,
            "max_keys": max_keys,
            "namespace": namespace,
            "trusted_proxies": trusted_proxies,
            "client_address": client_address,
            "ipv6_prefix": ipv6_prefix,
            "headers": headers,
            "identify": identify,
            "deny_status": deny_status,
            "clock": clock,
        }
        settings = {name: value for name, value in settings.items() if value is not None}
        require_one_source(limit, limiter, by, attributes, bool(settings))
        if limiter is None:
            assert limit is not None
            limiter = Limiter.from_rules(rules_of(limit, by, name, identify=identify), store=store, **settings)
            if not store.startswith("memory:"):
                self._warn_of_namesake(limiter, (store, namespace, name))
        self.app = app
        self.limiter = limiter
        self._key = by if callable(by) else None
        self._attributes = checked_function(attributes, "attributes")
        #: Whether the application is asked about each request.
        self._asks = self._key is not None or attributes is not None
        self._address: AddressOf = checked_function(address, "address")
        self._exempt = exemption(exempt)
        self._cost = checked_cost(cost)
        self._count_when = checked_function(count_when, "count_when")
        self._on_denied = checked_function(on_denied, "on_denied")

    def _warn_of_namesake(self, limiter: Limiter, place: tuple[str, str | None, str]) -> None:
        other = _on_servers.get(place)
        if other is not None and other.limiter.rules != limiter.rules:
            name = place[-1]
            message = f"two different limits on one store are called {name!r}, so they share one count; give one of them another name="
            warnings.warn(message, TollkeeperWarning, stacklevel=3)
        _on_servers[place] = self

    def _is_exempt(self, request: Any) -> Any:
        """Whether a request is not limited, or an awaitable of that."""
        if self._exempt is None:
            return False
        return self._exempt(request) if callable(self._exempt) else self._exempt.has(self._path_of(request))

    def _path_of(self, request: Any) -> Any:
        return request.get(self._path)

    def _cost_of(self, request: Any) -> Any:
        """What a request costs, or an awaitable of that."""
        return cost_of(self._cost, request)


#: Middleware on stores that several share, by its store, namespace and name.
_on_servers: WeakValueDictionary[tuple[str, str | None, str], Middleware[Any, Any]] = WeakValueDictionary()
