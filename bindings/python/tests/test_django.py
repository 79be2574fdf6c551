"""Django: the middleware of its settings and the decorator, sync and async."""

from __future__ import annotations

import asyncio
from typing import Any

import django
import pytest
from django.conf import settings

settings.configure(
    DEBUG=True,
    SECRET_KEY="a test",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=["tollkeeper.django.RateLimitMiddleware"],
    TOLLKEEPER={"limit": "100/min burst 50", "by": "header.x-key|ip", "name": "site"},
)
django.setup()

from django.http import HttpRequest, HttpResponse  # noqa: E402
from django.test import AsyncClient, AsyncRequestFactory, Client, RequestFactory, override_settings  # noqa: E402
from django.urls import path  # noqa: E402
from django.utils.decorators import method_decorator  # noqa: E402
from django.views import View  # noqa: E402
from django.views.decorators.csrf import csrf_exempt  # noqa: E402

from tollkeeper import ConfigError, ManualClock, UsageError  # noqa: E402
from tollkeeper.django import Limits, RateLimitMiddleware, verdict_of  # noqa: E402
from tollkeeper.django import limit as site_limit  # noqa: E402

limit = Limits()


@limit("2/min", by="ip", name="login")
def login(request: HttpRequest) -> HttpResponse:
    verdict = verdict_of(request)
    return HttpResponse(",".join(row.rule for row in verdict.rules) if verdict is not None else "")


@limit("2/min", by=lambda request: request.headers.get("x-user"))
async def search(_request: HttpRequest, what: str) -> HttpResponse:
    await asyncio.sleep(0)
    return HttpResponse(f"found {what}")


def home(_request: HttpRequest) -> HttpResponse:
    return HttpResponse("home")


urlpatterns = [path("", home), path("login", login), path("search/<str:what>", search)]


def test_wsgi() -> None:
    client = Client()
    assert client.get("/").headers["ratelimit-policy"] == '"site";q=50;w=30'
    passed = client.get("/login")
    assert passed.content == b"site,login"
    assert passed.headers["ratelimit-policy"] == '"site";q=50;w=30,"login";q=2;w=60'
    client.get("/login")
    denied = client.get("/login")
    assert denied.status_code == 429 and denied.headers["content-type"] == "application/problem+json"
    assert denied.headers["retry-after"] == "30" and '"login";r=0' in denied.headers["ratelimit"]
    keyed = [client.get("/", headers={"x-key": "k"}).status_code for _ in range(51)]
    assert keyed == [200] * 50 + [429]


def test_asgi() -> None:
    async def main() -> None:
        client = AsyncClient()
        codes = [(await client.get(f"/search/{i}", headers={"x-user": "a"})).status_code for i in range(3)]
        assert codes == [200, 200, 429]
        answer: Any = await client.get("/search/x", headers={"x-user": "b"})
        assert answer.headers["ratelimit-policy"].startswith('"site";q=50;w=30,"/search/str:what:2/min"')

    asyncio.run(main())


def test_the_method_and_the_path_choose_no_other_count() -> None:
    """Each method had a count of its own, also one that a client makes up: whoever guesses passwords had as many tries as words.
    So had each path that is not found."""
    own = Limits()

    @own("2/min")
    def view(_request: HttpRequest, *_: Any) -> HttpResponse:
        return HttpResponse("ok")

    requests = RequestFactory()
    named: Any = type("Routed", (), {"route": "login"})
    for match in (named, None):
        codes: list[int] = []
        for number, method in enumerate(["GET", "POST", "FOO", "BAR"]):
            request = requests.generic(method, f"/{number}")
            request.resolver_match = match
            codes.append(view(request).status_code)
        assert codes == [200, 200, 429, 429], match
    assert len(own._rules) == 2


def test_the_language_chooses_no_other_count() -> None:
    """Where the language is a part of the path, or paths are translated, each language had a count of its own: whoever guesses passwords had
    as many tries as the site has languages."""
    from django.conf.urls.i18n import i18n_patterns
    from django.urls import include
    from django.utils.functional import lazy
    from django.utils.translation import get_language

    def page(_request: HttpRequest) -> HttpResponse:
        return HttpResponse("page")

    own = Limits()
    translated: Any = lazy(lambda: "anmelden" if get_language() == "de" else "login", str)()
    routes = [path("search", own("1/min")(page)), path("account/", include([path(translated, own("2/min")(page))]))]
    for prefixes_all in (True, False):
        urls = tuple(i18n_patterns(*routes, prefix_default_language=prefixes_all))
        given = {"ROOT_URLCONF": urls, "LANGUAGE_CODE": "en", "LANGUAGES": [(code, code) for code in ("en", "de", "fr")]}
        with override_settings(MIDDLEWARE=["django.middleware.locale.LocaleMiddleware"], **given):
            client = Client()
            first = "/en" if prefixes_all else ""
            paths = [f"{first}/account/login", "/de/account/anmelden", "/fr/account/login", f"{first}/search", "/de/search"]
            assert [client.get(each).status_code for each in paths] == [200, 200, 429, 200, 429]


def test_asgi_application() -> None:
    from django.core.asgi import get_asgi_application
    from starlette.testclient import TestClient

    from tollkeeper.asgi import RateLimitMiddleware

    client = TestClient(RateLimitMiddleware(get_asgi_application(), limit="1/min", name="outer"))
    assert '"outer"' in client.get("/").headers["ratelimit-policy"]
    assert client.get("/").status_code == 429


def middleware(get_response: Any, **config: Any) -> Any:
    with override_settings(TOLLKEEPER=config):
        return RateLimitMiddleware(get_response)


def test_exemptions_costs_and_key_functions_of_the_middleware() -> None:
    """The middleware took neither `exempt` nor `cost`, and an async key function only of views."""

    async def respond(request: HttpRequest) -> HttpResponse:
        return HttpResponse("home")

    async def tenant(request: HttpRequest) -> Any:
        await asyncio.sleep(0)
        return request.headers.get("x-tenant")

    config = {"limit": "4/min", "exempt": ["/healthz"], "cost": lambda request: 2}
    limited, requests = middleware(home, **config, by=lambda request: request.headers.get("x-tenant")), RequestFactory()
    codes = [limited(requests.get("/", headers={"x-tenant": name})).status_code for name in "aabaa"]
    assert codes == [200, 200, 200, 429, 429]
    assert [limited(requests.get("/healthz", headers={"x-tenant": "a"})).status_code for _ in range(3)] == [200] * 3
    with pytest.raises(UsageError, match="by: an async function needs an async view or ASGI"):
        middleware(home, **config, by=tenant)(requests.get("/"))

    async def main() -> None:
        limited, requests = middleware(respond, **config, by=tenant), AsyncRequestFactory()
        codes = [(await limited(requests.get("/", headers={"x-tenant": name}))).status_code for name in "aabaa"]
        assert codes == [200, 200, 200, 429, 429]
        assert [(await limited(requests.get("/healthz"))).status_code for _ in range(9)] == [200] * 9

    asyncio.run(main())


def test_rules_of_the_middleware(tmp_path: Any) -> None:
    rule = {"name": "login", "when": {"path": "/login"}, "key": "{ip}", "limit": "1/min"}
    file = tmp_path / "tollkeeper.yaml"
    file.write_text("rules:\n  - { name: login, when: { path: /login }, key: '{ip}', limit: 1/min }\n")
    for config in ({"rules": [rule], "headers": "x-ratelimit-delta"}, {"file": file}):
        limited, requests = middleware(home, **config), RequestFactory()
        codes = [limited(requests.get(path)).status_code for path in ("/login", "/", "/", "/login")]
        assert codes == [200, 200, 200, 429]


@pytest.mark.parametrize(
    ("config", "error", "words"),
    [
        ({}, UsageError, "settings.TOLLKEEPER: write one of limit, rules, file or limiter"),
        ({"limits": "10/s"}, UsageError, "write one of limit"),
        ({"limit": "10/s", "rules": []}, UsageError, "write one of limit"),
        ({"limit": "10/s", "stroe": "memory:"}, UsageError, "there is no setting 'stroe'; use one of limit, rules"),
        ({"limit": "10/s", "exempt": "/healthz"}, ConfigError, "exempt: must be a list of paths"),
        ({"rules": ["1/min by ip"], "by": "user"}, UsageError, "has its own settings"),
        ({"rules": []}, UsageError, r"settings.TOLLKEEPER: rules: \[\] has no rules, so nobody would be limited"),
        ({"limit": []}, ConfigError, "limit: the list is empty, so nobody would be limited"),
        ({"limit": "10/s", "exempt": None}, ConfigError, "exempt: must be a list of paths .* not None"),
    ],
)
def test_settings_that_make_no_sense_are_named(config: Any, error: type[Exception], words: str) -> None:
    """An empty list of limits or rules limited nobody, and nothing said so."""
    with pytest.raises(error, match=words):
        middleware(home, **config)


def test_a_class_with_async_handlers() -> None:
    """The page says to decorate `dispatch` of a class. That of a class with async handlers is no coroutine function but returns a coroutine,
    which was taken for the response: each request failed with a TypeError, after it had been counted. It still did where the limit was in a
    list with another decorator."""

    def views(*given: Any, among: tuple[Any, ...] = (), **options: Any) -> Any:
        @method_decorator([Limits()(*given, **options), *among], name="dispatch")
        class Page(View):
            async def get(self, _request: HttpRequest) -> HttpResponse:
                await asyncio.sleep(0)
                return HttpResponse("page")

        return Page.as_view()

    async def found(view: Any) -> Any:
        answers = [await view(AsyncRequestFactory().get("/", headers={"x-user": "ann"})) for _ in range(3)]
        return [answer.status_code for answer in answers], "ratelimit" in answers[0].headers

    async def by_user(request: HttpRequest) -> str | None:
        return request.headers.get("x-user")

    for options in ({}, {"by": by_user}, {"count_when": lambda response: response.status_code == 200}):
        assert asyncio.run(found(views("2/min", **options))) == ([200, 200, 429], True)
    assert asyncio.run(found(views("2/min", among=(csrf_exempt,)))) == ([200, 200, 429], True)
    assert asyncio.run(found(views("1/min", exempt=lambda request: True)))[0] == [200] * 3

    async def together(view: Any) -> list[int]:
        answers = await asyncio.gather(*(view(AsyncRequestFactory().get("/")) for _ in range(3)))
        return sorted(answer.status_code for answer in answers)

    view = views("2 algorithm concurrency")
    assert [asyncio.run(together(view)) for _ in range(2)] == [[200, 200, 429]] * 2, "slots are held until the response is there"


def test_tests_may_override_the_settings() -> None:
    """`@limit` kept the limiter of the first request in the process: tests with a clock of their own were decided by the machine's, and
    met the counts of the tests before them."""
    view, requests = site_limit("1/min", name="overridden")(home), RequestFactory()
    for _ in range(2):
        clock = ManualClock()
        with override_settings(TOLLKEEPER={"limit": "9/min", "clock": clock}):
            assert [view(requests.get("/")).status_code for _ in range(2)] == [200, 429]
            clock.advance(60)
            assert view(requests.get("/")).status_code == 200


def failed(response: HttpResponse) -> bool:
    return response.status_code != 302


def test_only_logins_that_fail_count() -> None:
    """Django's form shows itself again, with 200, when a password is wrong."""
    from django.core.exceptions import PermissionDenied

    def answer(request: HttpRequest) -> HttpResponse:
        password = request.GET["password"]
        if password == "raise":
            raise PermissionDenied
        return HttpResponse(status=302 if password == "right" else 200)

    async def answer_later(request: HttpRequest) -> HttpResponse:
        await asyncio.sleep(0)
        return answer(request)

    seen: list[int] = []

    async def failed_later(response: HttpResponse) -> bool:
        seen.append(response.status_code)
        return failed(response)

    passwords = ["right", "right", "right", "wrong", "right", "raise", "right"]
    view = Limits()("2/h", by="ip", count_when=failed)(answer)
    codes = []
    for password in passwords:
        try:
            codes.append(view(RequestFactory().get(f"/?password={password}")).status_code)
        except PermissionDenied:
            codes.append(403)
    assert codes == [302, 302, 302, 200, 302, 403, 429]

    async def main() -> list[int]:
        later = Limits()("2/h", by="ip", count_when=failed_later)(answer_later)
        codes = []
        for password in passwords:
            try:
                codes.append((await later(AsyncRequestFactory().get(f"/?password={password}"))).status_code)
            except PermissionDenied:
                codes.append(403)
        return codes

    assert asyncio.run(main()) == [302, 302, 302, 200, 302, 403, 429] and seen == [302, 302, 302, 200, 302, 403]
    config = {"limit": "2/h", "count_when": failed}
    with override_settings(TOLLKEEPER=config):
        site = RateLimitMiddleware(answer)
        found = [site(RequestFactory().get(f"/?password={password}")).status_code for password in ["right", "right", "wrong", "right"]]
        assert found == [302, 302, 200, 302]
        found = [site(RequestFactory().get(f"/?password={password}")).status_code for password in ["wrong", "right"]]
        assert found == [200, 429]


def test_views_of_classes() -> None:
    """Before Python 3.12 an async one is marked in Django's own way, was taken for a sync view, and failed."""

    class Later(View):
        async def get(self, _request: HttpRequest) -> HttpResponse:
            return HttpResponse("in")

    async def main() -> list[int]:
        view = Limits()("1/h", count_when=lambda response: response.status_code == 200)(Later.as_view())
        return [(await view(AsyncRequestFactory().get("/"))).status_code for _ in range(2)]

    assert asyncio.run(main()) == [200, 429]


def test_a_denial_in_the_words_of_the_application() -> None:
    def answer(request: HttpRequest, verdict: Any) -> Any:
        assert not verdict.allowed
        own = {"retry-after": "7", "ratelimit": "mine"} if request.path == "/own" else {}
        return "no response" if request.path == "/broken" else HttpResponse("slow down", headers=own)

    async def answer_later(request: HttpRequest, verdict: Any) -> Any:
        return answer(request, verdict)

    view = Limits()("1/h", name="a", on_denied=answer)(home)
    view(RequestFactory().get("/"))
    denied = view(RequestFactory().get("/"))
    assert denied.status_code == 429 and denied.content == b"slow down" and int(denied["retry-after"]) > 0
    assert denied["ratelimit"].startswith('"a";r=0') and denied["cache-control"] == "no-store"
    denied = view(RequestFactory().get("/own"))
    assert (denied["retry-after"], denied["ratelimit"]) == ("7", "mine") and denied["ratelimit-policy"]
    with pytest.raises(UsageError, match="on_denied: must return a HttpResponse"):
        view(RequestFactory().get("/broken"))

    # One for all: what is added to it for one client is not for the next.
    clock, sorry = ManualClock(), HttpResponse("sorry")
    view = Limits(clock=clock)("1/h", on_denied=lambda request, verdict: sorry)(home)
    view(RequestFactory().get("/"))
    waits = []
    for _ in range(2):
        waits.append(view(RequestFactory().get("/"))["retry-after"])
        clock.advance(600)
    assert waits == ["3600", "3000"] and sorry.status_code == 429

    async def home_later(_request: HttpRequest) -> HttpResponse:
        return HttpResponse("home")

    async def main() -> Any:
        later = Limits()("1/h", on_denied=answer_later)(home_later)
        await later(AsyncRequestFactory().get("/"))
        return await later(AsyncRequestFactory().get("/"))

    assert asyncio.run(main()).content == b"slow down"
    with override_settings(TOLLKEEPER={"limit": "1/h", "on_denied": answer}):
        site = RateLimitMiddleware(home)
        assert [site(RequestFactory().get("/")).content for _ in range(2)] == [b"home", b"slow down"]


def test_views_use_the_store_and_the_proxies_of_the_settings(redis_server: Any, namespace: str) -> None:
    """`limit` knew nothing of `settings.TOLLKEEPER`: behind a proxy that was listed there, all clients together had five logins a
    minute, and each worker counted by itself."""
    from tollkeeper.django import _SiteLimits

    config = {
        "limit": "100/min", "store": redis_server.url, "namespace": namespace, "timeout": 5, "trusted_proxies": ["127.0.0.1"],
        "identify": {"tenant": "header.x-tenant"},
    }
    with override_settings(TOLLKEEPER=config):
        workers = [_SiteLimits()("2/min", by="ip", name="login")(home) for _ in range(2)]

        def get(worker: int, client: str) -> int:
            status: int = workers[worker](RequestFactory().get("/", headers={"x-forwarded-for": client})).status_code
            return status

        assert [get(0, "1.1.1.1"), get(1, "1.1.1.1"), get(0, "1.1.1.1"), get(1, "1.1.1.1")] == [200, 200, 429, 429]
        assert get(0, "2.2.2.2") == 200
        by_tenant = _SiteLimits()("1/min", by="tenant")(home)
        assert [by_tenant(RequestFactory().get("/", headers={"x-tenant": name})).status_code for name in "aba"] == [200, 200, 429]


def test_a_setting_turns_all_limits_off() -> None:
    """Tests of a site had no way to turn off the limits of its views."""
    from tollkeeper.django import limit as of_the_site

    view = of_the_site("1/min", by="ip", name="turned-off")(home)
    with override_settings(TOLLKEEPER={"limit": "1/min", "enabled": False}):
        client = Client()
        assert [client.get("/").status_code for _ in range(3)] == [200] * 3
        assert [view(RequestFactory().get("/")).status_code for _ in range(3)] == [200] * 3
    assert [view(RequestFactory().get("/")).status_code for _ in range(2)] == [200, 429]


def test_some_requests_of_a_view_and_views_that_are_classes() -> None:
    from django.views import View

    def is_reading(request: HttpRequest) -> bool:
        return request.method == "GET"

    async def is_reading_later(request: HttpRequest) -> bool:
        return is_reading(request)

    async def home_later(_request: HttpRequest) -> HttpResponse:
        return HttpResponse("home")

    @method_decorator(Limits()("1/min", exempt=is_reading), name="dispatch")
    class Form(View):
        def get(self, _request: HttpRequest) -> HttpResponse:
            return HttpResponse("read")

        def post(self, _request: HttpRequest) -> HttpResponse:
            return HttpResponse("written")

    class Wrong(View):
        @Limits()("1/min")
        def get(self, _request: HttpRequest) -> HttpResponse:
            return HttpResponse("read")

    with pytest.raises(UsageError, match="decorate a method with @method_decorator"):
        Wrong.as_view()(RequestFactory().get("/"))
    for view in (Limits()("1/min", exempt=is_reading)(home), Form.as_view()):
        requests = RequestFactory()
        assert [view(requests.get("/")).status_code for _ in range(2)] == [200, 200]
        assert [view(requests.post("/")).status_code for _ in range(2)] == [200, 429]

    async def main() -> None:
        view, requests = Limits()("1/min", exempt=is_reading_later)(home_later), AsyncRequestFactory()
        for method, codes in (("get", [200, 200]), ("post", [200, 429])):
            assert [(await view(getattr(requests, method)("/"))).status_code for _ in range(2)] == codes

    asyncio.run(main())


def test_limits_by_plan() -> None:
    rule = {"name": "free", "when": {"plan": "free"}, "key": "{ip}", "limit": "1/min"}

    def plan(request: HttpRequest) -> dict[str, str]:
        return {"plan": request.headers.get("x-plan", "")}

    async def plan_later(request: HttpRequest) -> dict[str, str]:
        return plan(request)

    async def home_later(_request: HttpRequest) -> HttpResponse:
        return HttpResponse("home")

    limited, requests = middleware(home, rules=[rule], attributes=plan), RequestFactory()
    plans = ["free", "free", "pro", "pro"]
    assert [limited(requests.get("/", headers={"x-plan": plan})).status_code for plan in plans] == [200, 429, 200, 200]

    async def main() -> None:
        limited, requests = middleware(home_later, rules=[rule], attributes=plan_later), AsyncRequestFactory()
        found = [(await limited(requests.get("/", headers={"x-plan": plan}))).status_code for plan in plans]
        assert found == [200, 429, 200, 200]

    asyncio.run(main())


def test_users_of_async_views() -> None:
    """Django reads its user from the database when it is first used, which an event loop forbids: `@limit(by="user")` on an async view
    failed. And the middleware asked for the user of the session, although the site's own middleware had put another in its place."""
    from types import SimpleNamespace

    from django.utils.asyncio import async_unsafe
    from django.utils.functional import SimpleLazyObject

    async def home_later(_request: HttpRequest) -> HttpResponse:
        return HttpResponse("home")

    def request(of_the_session: str | None, own: str | None = None) -> HttpRequest:
        made = AsyncRequestFactory().get("/")

        @async_unsafe
        def read() -> Any:
            raise AssertionError("it can be awaited")

        async def auser() -> Any:
            return SimpleNamespace(id=of_the_session, is_authenticated=of_the_session is not None)

        # As django.contrib.auth does.
        read.__module__ = "django.contrib.auth.middleware"
        made.user = SimpleLazyObject(read)
        made.auser = auser
        if own is not None:
            made.user = SimpleNamespace(id=own)
        return made

    async def main() -> None:
        site = middleware(home_later, limit="1/min", by="user")
        for limited in (Limits()("1/min", by="user")(home_later), site):
            given = [("ann", None), ("bob", None), ("ann", None), (None, None), (None, None), (None, "key"), (None, "key"), ("bob", "own")]
            found = [(await limited(request(*each))).status_code for each in given]
            assert found == [200, 200, 429, 200, 200, 200, 429, 200]

    asyncio.run(main())


def test_lazy_users_of_other_middleware() -> None:
    """Middleware that reads tokens often puts a lazy user in the place of Django's. Async limits by user asked for the one of the session all
    the same, who is nobody: such users were not limited at all."""
    from types import SimpleNamespace

    from django.utils.asyncio import async_unsafe
    from django.utils.functional import SimpleLazyObject

    @Limits()("1/min", by="user")
    async def home_later(_request: HttpRequest) -> HttpResponse:
        return HttpResponse("home")

    def request(token: str | None) -> HttpRequest:
        made: Any = AsyncRequestFactory().get("/")

        @async_unsafe
        def read() -> Any:
            return SimpleNamespace(pk=token, is_authenticated=token is not None)

        async def auser() -> Any:
            return SimpleNamespace(is_authenticated=False)

        made.user, made.auser = SimpleLazyObject(read), auser
        return made

    async def main() -> list[int]:
        return [(await home_later(request(token))).status_code for token in ("ann", "bob", "ann", None, None)]

    assert asyncio.run(main()) == [200, 200, 429, 200, 200]


def test_the_peer_of_a_unix_socket() -> None:
    """Behind nginx on a Unix socket, each request failed, because gunicorn tells no address."""
    from tollkeeper.django import _SiteLimits

    def local(request: HttpRequest) -> str:
        return request.META.get("REMOTE_ADDR") or "127.0.0.1"

    async def home_later(_request: HttpRequest) -> HttpResponse:
        return HttpResponse("home")

    config = {"limit": "2/min", "address": local, "trusted_proxies": ["127.0.0.1"]}
    with override_settings(TOLLKEEPER=config):
        site = RateLimitMiddleware(_SiteLimits()("1/min")(home))
        for client in ("1.1.1.1", "2.2.2.2"):
            made = {"headers": {"x-forwarded-for": client}, "REMOTE_ADDR": ""}
            assert [site(RequestFactory().get("/", **made)).status_code for _ in range(2)] == [200, 429]

        async def main() -> None:
            later = RateLimitMiddleware(home_later)
            for client, codes in (("3.3.3.3", [200, 200, 429]), ("4.4.4.4", [200])):
                for code in codes:
                    request = AsyncRequestFactory().get("/", headers={"x-forwarded-for": client})
                    request.scope["client"] = None
                    request.META["REMOTE_ADDR"] = ""
                    assert (await later(request)).status_code == code

        asyncio.run(main())
