"""Throttles of Django REST framework."""

from __future__ import annotations

import re
import time
import urllib.request
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError

import pytest
import test_django  # noqa: F401  (its settings are those of the process)
from conftest import ROOT, Redis, free_port, serving
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.wsgi import WSGIRequest
from django.test import override_settings
from rest_framework.authentication import BaseAuthentication
from rest_framework.decorators import action, api_view, authentication_classes, throttle_classes
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory
from rest_framework.throttling import SimpleRateThrottle
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet
from werkzeug.test import Client as WSGIClient

from tollkeeper import ConfigError, Limiter, ManualClock, RuleError, TollkeeperWarning, UsageError, django, rest_framework, wsgi
from tollkeeper.rest_framework import AnonRateThrottle, RateThrottle, ScopedRateThrottle, UserRateThrottle

RATES = {"anon": "1/hour", "user": ["2/m", "3/day"], "uploads": "2/min burst 3", "off": None, "slots": "1 algorithm concurrency"}
CLOCK = ManualClock()


class Token(BaseAuthentication):
    """Users are known by a token, which only the view reads."""

    def authenticate(self, request: Any) -> Any:
        name = request.headers.get("x-token")
        plan = "pro" if name and name.startswith("pro-") else "free"
        return (SimpleNamespace(pk=name, is_authenticated=True, plan=plan), None) if name else None


@pytest.fixture(autouse=True)
def site(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a process has that was started with these settings."""
    monkeypatch.setattr(django, "limit", django._SiteLimits())
    monkeypatch.setattr(rest_framework, "_made", {})
    monkeypatch.setattr(SimpleRateThrottle, "THROTTLE_RATES", RATES)
    settings = {"trusted_proxies": ["127.0.0.1"], "clock": CLOCK}
    with override_settings(REST_FRAMEWORK={"UNAUTHENTICATED_USER": None}, TOLLKEEPER=settings):
        yield


def view(*classes: type[RateThrottle], scope: str | None = None) -> Any:
    class View(APIView):
        authentication_classes = [Token]
        throttle_classes = classes
        throttle_scope = scope

        def get(self, _request: Any) -> Response:
            return Response({"ok": True})

    return View.as_view()


def get(view: Any, user: str | None = None, client: str | None = None, **more: str) -> Any:
    headers = {"x-token": user, "x-forwarded-for": client, **more}
    response = view(APIRequestFactory().get("/", headers={name: value for name, value in headers.items() if value is not None}))
    response.render()
    return response


def codes(view: Any, *users: str | None, **given: Any) -> list[int]:
    return [get(view, user, **given).status_code for user in users]


def test_the_users_of_views_are_limited() -> None:
    """Views learn of their users by tokens that they read themselves, after middleware and decorators; so limits by user needed a throttle
    that everybody wrote anew, without limit headers."""
    limited = view(UserRateThrottle)
    passed = get(limited, "ann")
    assert passed.headers["ratelimit-policy"] == '"user";q=2;w=60,"user-2";q=3;w=86400'
    assert passed.headers["ratelimit"] == '"user";r=1;t=30,"user-2";r=2;t=28800'
    get(limited, "ann")
    denied = get(limited, "ann")
    assert (denied.status_code, denied.headers["retry-after"]) == (429, "30")
    assert denied.data == {"detail": "Request was throttled. Expected available in 30 seconds."}
    assert denied.headers["ratelimit"].startswith('"user";r=0;t=30,"user-2";r=1')
    assert codes(limited, "bob", None, None, None) == [200, 200, 200, 429], "nobody is counted by address"
    assert codes(limited, None, client="1.1.1.1") == [200]
    CLOCK.advance(29.5)
    assert get(limited, "ann").headers["retry-after"] == "1"
    CLOCK.advance(0.5)
    assert codes(limited, "ann", "ann") == [200, 429]
    CLOCK.advance(60)
    denied = get(limited, "ann")
    assert denied.headers["retry-after"] == str(28800 - 90), "all rates of a list hold, and the longest wait is told"


def test_a_file_for_the_middleware_is_none_for_throttles() -> None:
    """With rules in a file, throttles counted in the memory of each process, and all clients behind the file's proxies as one, without a
    word."""
    limited = view(AnonRateThrottle)
    with override_settings(TOLLKEEPER={"file": "tollkeeper.yaml"}):
        with pytest.warns(TollkeeperWarning, match="'file', which is for the middleware alone.*Limits\\(store=..., trusted_proxies=...\\)"):
            assert codes(limited, None, None, client="1.1.1.1") == [200, 429]
        assert codes(limited, None, client="2.2.2.2") == [429], "the file's proxies are not known here, and it is told of once"

        class Own(AnonRateThrottle):
            limits = django.Limits(trusted_proxies=["127.0.0.1"], clock=CLOCK)

        limited = view(Own)
        assert codes(limited, None, None, client="1.1.1.1") == [200, 429]
        assert codes(limited, None, client="2.2.2.2") == [200]
        Own.limits.enabled = False
        assert codes(limited, None, client="1.1.1.1") == [200]
        Own.limits = django.Limits(trusted_proxies=["127.0.0.1"], clock=CLOCK)
        assert codes(limited, None, None, client="1.1.1.1") == [200, 429], "others in their place have counts of their own"


def test_the_store_beside_a_file_is_used_by_throttles() -> None:
    """The warning said that it is not."""
    with override_settings(TOLLKEEPER={"file": "tollkeeper.yaml", "store": "memory:"}):
        with pytest.warns(TollkeeperWarning, match="throttles do not use its trusted_proxies; give"):
            assert codes(view(AnonRateThrottle), None, None) == [200, 429]


def test_wait_is_exact() -> None:
    throttle = UserRateThrottle()
    request: Any = SimpleNamespace(user=SimpleNamespace(pk="ann"), _request=APIRequestFactory().get("/"))
    some: Any = SimpleNamespace(headers={})
    assert [throttle.allow_request(request, some) for _ in range(3)] == [True, True, False]
    CLOCK.advance(0.25)
    assert not throttle.allow_request(request, some) and throttle.wait() == 29.75
    plain = APIRequestFactory().get("/")
    plain.user = SimpleNamespace(pk="ann")
    assert not UserRateThrottle().allow_request(plain, None), "where a function of Django asks"


def test_scopes_of_views() -> None:
    first, second, other = (view(ScopedRateThrottle, scope=scope) for scope in ("uploads", "uploads", None))
    found = codes(first, "ann", "ann") + codes(second, "ann", "ann", "bob")
    assert found == [200, 200, 200, 429, 200]
    assert codes(other, "ann", "ann", "ann", "ann") == [200] * 4 and "ratelimit" not in get(other).headers
    assert codes(view(ScopedRateThrottle, scope="off"), "ann", "ann") == [200, 200]
    both = view(AnonRateThrottle, ScopedRateThrottle, scope="uploads")
    assert codes(both, None, None) == [200, 429] and codes(both, "eve", "eve", "eve", "eve") == [200, 200, 200, 429]
    assert get(both).headers["ratelimit-policy"] == '"anon";q=1;w=3600,"uploads";q=3;w=90'


def test_addresses_are_those_that_the_settings_trust() -> None:
    """The framework's own throttles believe `X-Forwarded-For`: whoever writes another one each time is not limited."""
    limited = view(AnonRateThrottle)
    assert codes(limited, None, client="1.1.1.1") + codes(limited, None, client="2.2.2.2") == [200, 200]
    assert codes(limited, None, client="3.3.3.3, 1.1.1.1") == [429]
    assert codes(limited, "ann", "ann", client="1.1.1.1") == [200, 200], "only requests without a user"


def test_keys_of_its_own_and_other_rates() -> None:
    class ByTenant(RateThrottle):
        scope = "tenant"
        rate = "1/min"

        def get_cache_key(self, request: Any, view: Any) -> str | None:
            tenant: str | None = request.headers.get("x-tenant")
            return tenant

    limited = view(ByTenant)
    found = [get(limited, **{"x-tenant": tenant}).status_code for tenant in "aba"]
    assert found == [200, 200, 429] and codes(limited, "ann", "ann") == [200, 200]

    class Paced(UserRateThrottle):
        scope = "paced"
        rate = "100/s burst 5 algorithm leaky_bucket"

    start = time.monotonic()
    assert codes(view(Paced), *["ann"] * 5) == [200] * 5 and time.monotonic() - start > 0.03
    assert django.limit.limiter.reset_sync("tenant", "a") and get(limited, **{"x-tenant": "a"}).status_code == 200


def test_keys_of_subclasses_as_in_the_framework() -> None:
    """Subclasses that worked with the framework's throttles: one of `AnonRateThrottle` with a key of its own limited no user, because users
    were let through before it was asked; one that asks `super()` failed each request; and `get_ident` believed `X-Forwarded-For`, so
    whoever wrote another one each time was not limited."""

    class Login(AnonRateThrottle):
        scope = "login"
        rate = "1/min"

        def get_cache_key(self, request: Any, view: Any) -> str | None:
            return self.cache_format % {"scope": self.scope, "ident": self.get_ident(request)}

    limited = view(Login)
    assert codes(limited, "ann", client="1.1.1.1") + codes(limited, "bob", None, client="1.1.1.1") == [200, 429, 429]
    assert codes(limited, None, client="9.9.9.9, 1.1.1.1") + codes(limited, None, client="2.2.2.2") == [429, 200]
    networks = [codes(limited, None, client=f"2001:db8::{host}")[0] for host in (1, 2)]
    assert networks == [200, 429], "the clients of one network are one"

    class ButStaff(UserRateThrottle):
        scope = "but-staff"
        rate = "1/min"

        def get_cache_key(self, request: Any, view: Any) -> str | None:
            return None if getattr(request.user, "pk", None) == "staff" else super().get_cache_key(request, view)

    class Anonymous(AnonRateThrottle):
        scope = "anonymous"
        rate = "1/min"

        def get_cache_key(self, request: Any, view: Any) -> str | None:
            return super().get_cache_key(request, view)

    found = codes(view(ButStaff), "ann", "ann", "bob", "staff", "staff", None, None, client="3.3.3.3")
    assert found == [200, 429, 200, 200, 200, 200, 429]
    assert codes(view(ButStaff), "3.3.3.3") == [200], "a user is no address"
    assert codes(view(Anonymous), "ann", "ann", None, None) == [200, 200, 200, 429]

    with override_settings(TOLLKEEPER={"clock": CLOCK, "address": lambda request: request.headers["x-real-ip"]}):
        answers = [get(limited, "ann", **{"x-real-ip": address}).status_code for address in ("4.4.4.4", "4.4.4.4", "5.5.5.5")]
    assert answers == [200, 429, 200]


def test_an_ident_of_its_own() -> None:
    """The framework makes its keys of `get_ident`, so that is where throttles behind a content network read their client's address. It was not
    asked, and all clients of one edge server were limited together."""

    class Edge:
        def get_ident(self, request: Any) -> str:
            ident: str = request.headers["x-edge-client"]
            return ident

    def answered(throttle: Any, *clients: str, user: str | None = None) -> list[int]:
        return [get(view(throttle), user, **{"x-edge-client": client}).status_code for client in clients]

    anonymous = type("Anonymous", (Edge, AnonRateThrottle), {"scope": "edge-anon", "rate": "1/min"})
    assert answered(anonymous, "a", "b", "a") == [200, 200, 429] and answered(anonymous, "a", "a", user="ann") == [200, 200]
    users = type("Users", (Edge, UserRateThrottle), {"scope": "edge-user", "rate": "1/min"})
    assert answered(users, "a", "b", "a") == [200, 200, 429] and answered(users, "a", "c", user="ann") == [200, 429]


def test_an_empty_key_is_a_key() -> None:
    """In the framework only None means no limit. Clients that left out what they are known by were not limited."""

    class ByTenant(RateThrottle):
        scope, rate = "empty-tenant", "1/min"

        def get_cache_key(self, request: Any, view: Any) -> str:
            return str(request.headers.get("x-tenant", ""))

    limited = view(ByTenant)
    assert [get(limited, **given).status_code for given in ({}, {}, {"x-tenant": "a"})] == [200, 429, 200]


def test_views_of_functions_and_actions_of_viewsets() -> None:
    class Paced(UserRateThrottle):
        scope = "paced-functions"
        rate = "1/min"

    @api_view(["GET"])
    @authentication_classes([Token])
    @throttle_classes([Paced])
    def function(_request: Any) -> Response:
        return Response({"ok": True})

    class Files(ViewSet):
        authentication_classes = [Token]
        throttle_scope = None

        def list(self, _request: Any) -> Response:
            return Response([])

        @action(detail=False, throttle_classes=[ScopedRateThrottle], throttle_scope="uploads")
        def upload(self, _request: Any) -> Response:
            return Response({"ok": True})

    assert codes(function, "ann", "ann", "bob") == [200, 429, 200]
    assert codes(Files.as_view({"get": "list"}), *["ann"] * 5) == [200] * 5
    assert codes(Files.as_view({"get": "upload"}, **Files.upload.kwargs), *["ann"] * 4) == [200, 200, 200, 429]


def test_rates_as_the_framework_spells_them() -> None:
    for rate, wait in (("1/s", 1), ("1/sec", 1), ("1/m", 60), ("1/minute", 60), ("1/hour", 3600), ("1/d", 86400), ("1/days", 86400)):
        limited = view(type("Spelled", (UserRateThrottle,), {"rate": rate, "scope": rate.replace("/", "-")}))
        assert codes(limited, "ann") == [200] and get(limited, "ann").headers["retry-after"] == str(wait)


def test_rates_that_a_subclass_reads() -> None:
    """A subclass that reads rates in its own way, or sets what is read of them, had the limit of the text all the same: a thousand a day where
    it said two in five minutes."""

    class Words:
        def parse_rate(self, rate: str) -> tuple[int, int]:
            return {"a few/day": 2, "1000/day": 2}[rate], 300

    for kind, rate in ((UserRateThrottle, "a few/day"), (UserRateThrottle, "1000/day")):
        read = type("Read", (Words, kind), {"scope": f"read {rate}", "rate": rate})
        assert get(view(read), "ann").headers["ratelimit-policy"].endswith(";q=2;w=300")
    scoped = type("ReadScoped", (Words, ScopedRateThrottle), {"THROTTLE_RATES": {"words": "a few/day"}})
    assert codes(view(scoped, scope="words"), "ann", "ann", "ann") == [200, 200, 429]

    class Set(UserRateThrottle):
        scope, rate = "set", "1000/day"
        seconds: int | None = 60

        def __init__(self) -> None:
            super().__init__()
            self.num_requests, self.duration = 1, self.seconds

    assert codes(view(Set), "ann", "ann") == [200, 429]
    with pytest.raises(UsageError, match='Half: num_requests is set without duration; set rate instead, such as "1/min"'):
        get(view(type("Half", (Set,), {"seconds": None})), "ann")


def test_a_limit_by_plan_as_the_page_has_it() -> None:
    page = (ROOT / "docs" / "howto" / "django.md").read_text()
    (code,) = re.findall(r"^```python\n(from rest_framework.*?)^```", page, flags=re.M | re.S)
    rules = [{"name": plan, "when": {"plan": plan}, "key": "{user}", "limit": f"{count}/min"} for plan, count in (("free", 1), ("pro", 2))]
    names: dict[str, Any] = {"limiter": Limiter.from_rules(rules)}
    exec(code, names)
    limited = view(names["PlanThrottle"])
    assert codes(limited, "ann", "ann", "pro-bob", "pro-bob", "pro-bob") == [200, 429, 200, 200, 429]
    assert get(limited, "ann").headers["retry-after"] == "60"


def test_mistakes_are_named() -> None:
    """Which of the rates was wrong had to be guessed: the words had neither its scope nor its class."""

    class Unknown(UserRateThrottle):
        scope = "unknown"

    class Twice(UserRateThrottle):
        rate = "9/min"

    class Wrong(UserRateThrottle):
        scope = "wrong"
        rate = "5/fortnight"

    class Number(UserRateThrottle):
        scope, rate = "number", 5

    class Empty(UserRateThrottle):
        scope = "empty"

        def get_rate(self) -> Any:
            return []

    for throttle, error, words in (
        (Unknown, ImproperlyConfigured, "No default throttle rate set for 'unknown' scope"),
        (Wrong, RuleError, "Wrong: the rate '5/fortnight' of scope 'wrong': .* not a unit of time"),
        (Number, ConfigError, "Number: the rate 5 of scope 'number': limit: must be a line such as"),
        (Empty, ConfigError, r"Empty: the rate \[\] of scope 'empty': limit: the list is empty"),
        (Twice, UsageError, "two different limits are called 'user'; give one of them another name"),
    ):
        codes(view(UserRateThrottle), "eve")
        with pytest.raises(error, match=words):
            get(view(throttle))
    with pytest.raises(UsageError, match="a throttle does not see when a request ends"):
        get(view(ScopedRateThrottle, scope="slots"))


def test_a_request_that_is_shed_is_no_denial(monkeypatch: pytest.MonkeyPatch) -> None:
    class Shed:
        """As when too many wait for Redis."""

        def _denial(self) -> Any:
            return 503, [(b"retry-after", b"1")], b'{"title": "Service Unavailable", "detail": "too many requests are waiting"}'

    monkeypatch.setattr(rest_framework, "Refusal", Shed)
    monkeypatch.setattr(RateThrottle, "_decided", lambda *_: Shed())
    shed = get(view(AnonRateThrottle))
    assert (shed.status_code, shed.headers["retry-after"]) == (503, "1") and shed.data == {"detail": "too many requests are waiting"}


def test_the_setting_that_turns_limits_off() -> None:
    limited = view(AnonRateThrottle)
    with override_settings(TOLLKEEPER={"enabled": False}):
        assert codes(limited, None, None, None) == [200] * 3


def test_headers_are_written_once_beside_the_middleware() -> None:
    limited = view(UserRateThrottle)
    with override_settings(TOLLKEEPER={"limit": "9/min", "name": "site"}):
        site = django.RateLimitMiddleware(limited)
        answers = [site(APIRequestFactory().get("/", headers={"x-token": "ann"})) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[2].headers["ratelimit-policy"] == '"site";q=9;w=60,"user";q=2;w=60,"user-2";q=3;w=86400'
    assert answers[2].headers["retry-after"] == "30"


def test_headers_are_written_once_beside_the_middleware_of_wsgi() -> None:
    """Both wrote them: one after the other, or the outer ones in the middle of the others."""
    limited = view(UserRateThrottle)

    def framework(environ: Any, start_response: Any) -> Any:
        response = limited(WSGIRequest(environ))
        response.render()
        start_response(f"{response.status_code} ", list(response.headers.items()))
        return [response.content]

    client = WSGIClient(wsgi.RateLimitMiddleware(framework, "9/min", name="site"))
    peer = {"REMOTE_ADDR": "127.0.0.1"}
    answers = [client.get("/", headers={"x-token": "ann"}, environ_overrides=peer) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    for answer in answers:
        assert answer.headers.get_all("ratelimit-policy") == ['"site";q=9;w=60,"user";q=2;w=60,"user-2";q=3;w=86400']
    assert answers[2].headers["retry-after"] == "30"


def test_workers_of_a_real_server_count_together(redis_server: Redis) -> None:
    port = free_port()
    command = ["-m", "gunicorn", "-w", "2", "drf_app:application", "--log-level", "warning", "--bind", f"127.0.0.1:{port}"]
    found = []
    with serving(command, port, STORE=redis_server.url):
        for _ in range(12):
            request = urllib.request.Request(f"http://127.0.0.1:{port}/login", method="POST")
            try:
                with urllib.request.urlopen(request, timeout=10) as answer:
                    found.append((answer.status, "ratelimit" in answer.headers))
            except HTTPError as error:
                found.append((error.code, error.headers["retry-after"] in ("11", "12")))
    assert sorted(found) == [(200, True)] * 5 + [(429, True)] * 7
