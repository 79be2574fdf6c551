"""Rules and attributes of single routes: the same in each framework, and the same as in the middleware."""

from __future__ import annotations

import asyncio
from typing import Any, Optional

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import AsyncRequestFactory, RequestFactory
from fastapi import Depends, FastAPI, Header, Request
from fastapi.testclient import TestClient
from flask import Flask
from test_django import home as django_home
from test_exempt import PLANS, codes, plan_of, starlette

from tollkeeper import ConfigError, Limiter, UsageError, django, fastapi, flask


async def django_later(_request: HttpRequest) -> HttpResponse:
    await asyncio.sleep(0)
    return HttpResponse("home")


class DjangoClient:
    """Asks a view, and an open one."""

    def __init__(self, view: Any, is_async: bool) -> None:
        self.view = view
        self.is_async = is_async

    def get(self, path: str, headers: Any = None) -> Any:
        requests = AsyncRequestFactory() if self.is_async else RequestFactory()
        request = requests.get(path, headers=headers)
        if path == "/open":
            return django_home(request)
        return asyncio.run(self.view(request)) if self.is_async else self.view(request)


def routes_of(framework: str, is_async: bool, **options: Any) -> Any:
    """A client of one limited route, and of one that is open."""

    def home(*_: Any) -> str:
        return "home"

    async def home_later(*_: Any) -> str:
        await asyncio.sleep(0)
        return "home"

    view = home_later if is_async else home
    if framework == "fastapi":
        app = FastAPI()
        app.get("/", dependencies=[Depends(fastapi.Limits()(**options))])(lambda: "home")
        app.get("/open")(lambda: "open")
        return TestClient(app)
    if framework == "flask":
        site = Flask(__name__)
        site.testing = True
        site.get("/", endpoint="home")(flask.Limits()(**options)(view))
        site.get("/open")(lambda: "open")
        return site.test_client()
    return DjangoClient(django.Limits()(**options)(django_later if is_async else django_home), is_async)


ROUTES = pytest.mark.parametrize(
    ("framework", "is_async"), [("fastapi", True), ("flask", False), ("flask", True), ("django", False), ("django", True)]
)


@ROUTES
def test_limits_by_plan_of_a_route(framework: str, is_async: bool) -> None:
    """Only the middleware took attributes, for all requests alike: a route whose limit differs by plan, as exports do, needed `check` by
    hand, and headers by hand with it."""

    def attributes(request: Request) -> dict[str, Any]:
        return plan_of(request.headers)

    async def later(request: Request) -> dict[str, Any]:
        await asyncio.sleep(0)
        return attributes(request)

    for function in (attributes, later) if is_async else (attributes,):
        client = routes_of(framework, is_async, limiter=Limiter.from_rules(PLANS), attributes=function)
        for key, passed in (("a", 1), ("b", 3)):
            found = codes(client, ["/"] * 4, headers={"x-key": key})
            assert found == [200] * passed + [429] * (4 - passed)
        assert codes(client, ["/"] * 4) == [200] * 4, "no rule applies"
        assert codes(client, ["/open"] * 4, headers={"x-key": "a"}) == [200] * 4
        denied = client.get("/", headers={"x-key": "a"})
        assert denied.headers["ratelimit-policy"] == '"free";q=1;w=60' and int(denied.headers["retry-after"]) > 50
    if not is_async:
        with pytest.raises(UsageError, match="attributes: an async function needs an async view"):
            routes_of(framework, is_async, limiter=Limiter.from_rules(PLANS), attributes=later).get("/")


@ROUTES
def test_rules_of_a_route_are_those_of_its_limiter(framework: str, is_async: bool) -> None:
    """Routes that have the same limiter count together, its rules can be replaced, and slots that they hold come back."""
    limiter = Limiter.from_rules([{"name": "one", "when": {"method": "GET"}, "key": "{key|ip}", "limit": "1/min"}])
    first = routes_of(framework, is_async, limiter=limiter)
    second = routes_of(framework, is_async, limiter=limiter, by=lambda request: request.headers.get("x-key"))
    assert codes(second, ["/", "/"], headers={"x-key": "a"}) == [200, 429]
    assert codes(first, ["/"]) + codes(second, ["/"], headers={"x-key": "a"}) == [200, 429]
    limiter.replace_rules([{"name": "slots", "key": "global", "limit": 1, "algorithm": "concurrency"}])
    assert codes(first, ["/"] * 3) == [200] * 3
    limiter.replace_rules([{"name": "by-user", "key": "{user}", "limit": "1/min"}])
    with pytest.raises(UsageError, match="nobody has said who that is"):
        first.get("/")
    told = routes_of(framework, is_async, limiter=limiter, attributes=lambda request: {"user": request.headers["x-key"]})
    assert [told.get("/", headers={"x-key": key}).status_code for key in "aba"] == [200, 200, 429]


def test_attributes_by_a_dependency() -> None:
    asked = []

    async def customer(x_key: Optional[str] = Header(None)) -> dict[str, Any]:
        asked.append(x_key)
        return plan_of({"x-key": x_key})

    app, limiter = FastAPI(), Limiter.from_rules(PLANS)
    limited = Depends(fastapi.Limits()(limiter=limiter, attributes=customer))

    @app.get("/", dependencies=[limited])
    async def home(customer: Any = Depends(customer)) -> Any:
        return customer["plan"]

    client = TestClient(app)
    answers = [client.get("/", headers={"x-key": key}) for key in "abba"]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429] and answers[1].json() == "pro"
    assert asked == ["a", "b", "b", "a"], "FastAPI asks a dependency once in a request"
    assert "429" in app.openapi()["paths"]["/"]["get"]["responses"]


@pytest.mark.parametrize("framework", ["fastapi", "flask", "django"])
def test_mistakes_of_routes_are_those_of_the_middleware(framework: str) -> None:
    """A rule in the list was taken for a limit without its condition: all customers had the limits of all plans."""
    limiter = Limiter.from_rules(PLANS)
    limit: Any = {"fastapi": fastapi, "flask": flask, "django": django}[framework].Limits()
    for options, error, words in (
        ({"limit": "1/min", "attributes": plan_of}, UsageError, "attributes: only for rules; pass limiter= instead of a limit"),
        ({"limiter": limiter, "attributes": {"plan": "pro"}}, ConfigError, "attributes: must be a function"),
        ({"limit": "1/min", "limiter": limiter}, UsageError, "give either limit="),
        ({}, UsageError, "give either limit="),
        ({"limiter": limiter, "by": "ip"}, UsageError, "limiter= has its own settings"),
        ({"limiter": limiter, "name": "login"}, UsageError, "limiter= has its own settings"),
        ({"limiter": PLANS}, ConfigError, "limiter: must be made by Limiter.from_rules or Limiter.from_file, not"),
        ({"limit": []}, ConfigError, "limit: the list is empty, so nobody would be limited"),
        ({"limit": "1/min", "name": ""}, ConfigError, "name: must be a text such as \"login\", not ''"),
        ({"limit": "1/min", "by": "ip|header."}, ConfigError, "by: no request has 'header.'"),
        ({"limit": PLANS}, ConfigError, r"for rules, pass limiter=Limiter.from_rules\(\[...\]\)"),
    ):
        with pytest.raises(error, match=words):
            limit(**options)
        middleware = {**options, "by": options.get("by")}
        if "name" not in middleware:
            with pytest.raises(error, match=words):
                starlette(**middleware).get("/")
    for wrong in ("pro", None):
        with pytest.raises(UsageError, match=f"attributes: must return a mapping such as .*, not {wrong!r}"):
            routes_of(framework, False, limiter=limiter, attributes=lambda request: wrong).get("/")


def test_a_limit_that_cannot_be_used_does_not_fail_the_others() -> None:
    """The second of two limits called `user` is called `user-2`. Where a view had a limit of that name, every view of the application failed
    from its first request on, also those with other limits."""
    limit, app = flask.Limits(), Flask(__name__)
    app.get("/")(limit("5/min")(lambda: "home"))
    app.get("/many", endpoint="many")(limit(["9/min", "99/day"], name="user")(lambda: "many"))
    with pytest.raises(UsageError, match="two different limits are called 'user-2'; give one of them another name"):
        limit("5/min", name="user-2")
    assert codes(app.test_client(), ["/many", "/"]) == [200, 200]


def test_routes_in_other_alphabets_have_counts_of_their_own() -> None:
    """Names of rules are ASCII, and what was left of such routes was the same: whoever used up one of them had used up all."""
    limit, app = flask.Limits(), Flask(__name__)
    for number, path in enumerate(("/вход", "/выход", "/entrée", "/entrèe")):
        app.get(path, endpoint=str(number))(limit("1/min")(lambda: "ok"))
    assert codes(app.test_client(), ["/вход", "/вход", "/выход", "/entrée", "/entrèe"]) == [200, 429, 200, 200, 200]
    assert all(name.isascii() and name == name.strip("-") for name in limit._rules)
