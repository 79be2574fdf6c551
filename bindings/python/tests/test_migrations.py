"""What the migration tables and the advice of the pages say to write does what they say."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from conftest import ROOT, Redis
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory, override_settings
from fastapi import Depends, FastAPI
from fastapi.responses import PlainTextResponse
from fastapi.testclient import TestClient
from flask import Blueprint, Flask, request
from starlette.middleware.cors import CORSMiddleware
from test_django import home as django_home
from test_django import middleware as site_of

from tollkeeper import Limiter, django, fastapi, flask, keyed
from tollkeeper.asgi import RateLimitMiddleware as AsgiLimit
from tollkeeper.wsgi import RateLimitMiddleware as WsgiLimit

DOCS = ROOT / "docs"


class Table:
    """The right column of a migration table: a test has to run all of it."""

    def __init__(self, page: str, title: str, **names: Any) -> None:
        text = re.sub(r"^```.*?^```", "", (DOCS / page).read_text(), flags=re.M | re.S)
        section = re.split(r"^#+ ", text[text.index(f"# {title}\n") + 2 :], flags=re.M)[0]
        cells = [re.split(r"(?<!\\)\| ", row)[-1] for row in re.findall(r"^\| (.*) \|$", section, flags=re.M)[1:]]
        self.names = names
        self.left = {code.replace("\\|", "|") for cell in cells for code in re.findall(r"`([^`]+)`", cell)}

    def _of(self, code: str, replace: dict[str, str]) -> str:
        assert code in self.left, f"the table no longer says {code}; it says {self.left}"
        self.left.discard(code)
        for one, other in replace.items():
            code = code.replace(one, other)
        return code.removeprefix("@")

    def value(self, code: str, **replace: str) -> Any:
        return eval(self._of(code, replace), self.names)

    def options(self, code: str, **replace: str) -> Any:
        """Parameters, as a dict."""
        return eval(f"dict({self._of(code, replace)})", self.names)

    def do(self, code: str, **replace: str) -> None:
        exec(self._of(code, replace), self.names)

    def is_done(self, *names: str) -> None:
        """These stand for parameters that other lines of the table show."""
        assert self.left == set(names)


def flask_client(limited: Any, answer: Any = "ok", **more: Any) -> Any:
    app = Flask(__name__)
    app.add_url_rule("/", view_func=limited(lambda: answer() if callable(answer) else answer), endpoint="home", **more)
    return app.test_client()


def codes(client: Any, count: int, method: str = "GET") -> list[int]:
    return [client.open("/", method=method).status_code for _ in range(count)]


def test_from_flask_limiter(redis_server: Redis, namespace: str) -> None:
    names = {"RateLimitMiddleware": WsgiLimit, "Limits": flask.Limits, "verdict_of": flask.verdict_of, "request": request}
    table = Table("guide/python.md", "Migrating from flask-limiter", limit=flask.Limits(), **names)
    simple = flask_client(table.value('@limit("5/min")'))
    assert codes(simple, 6) == [200] * 5 + [429]
    several = flask_client(table.value('@limit(["5/min", "100/h"])')).get("/")
    assert re.findall("q=([0-9]+)", several.headers["ratelimit-policy"]) == ["5", "100"]
    shared = table.value('@limit("5/min", name="login")')
    assert codes(flask_client(shared), 3) + codes(flask_client(shared), 3) == [200] * 5 + [429]

    def with_options(code: str, **replace: str) -> Any:
        return flask.Limits()("1/min", **table.options(code, **replace))

    failed = with_options("count_when=lambda response: response.status_code == 401")
    assert codes(flask_client(failed), 3) == [200] * 3 and codes(flask_client(failed, ("no", 401)), 2) == [401, 429]
    own = flask_client(with_options("on_denied=lambda request, verdict: ...", **{"...": "'slow down'"}))
    assert codes(own, 2) == [200, 429] and own.get("/").text == "slow down"
    assert codes(flask_client(with_options("exempt=lambda request: ...")), 3) == [200] * 3
    posts = flask_client(with_options('exempt=lambda request: request.method != "POST"'), methods=["GET", "POST"])
    assert codes(posts, 3) + codes(posts, 2, "POST") == [200, 200, 200, 200, 429]
    on_redis = table.value('Limits(store="redis://...")', **{"redis://...": f'{redis_server.url}", namespace="{namespace}'})
    assert codes(flask_client(on_redis("1/min")), 2) == [200, 429]
    seen = table._of("verdict_of(request).rules", {})
    assert flask_client(flask.Limits()("9/min", name="seen"), lambda: eval(seen, table.names)[0].rule).get("/").text == "seen"
    table.do("limit.enabled = False")
    assert codes(simple, 2) == [200, 200]

    app, blueprint = Flask(__name__), Blueprint("api", __name__)
    table.names.update(app=app, blueprint=blueprint, limit=flask.Limits())
    table.do('blueprint.before_request(limit("5/min", name="api")(lambda: None))')
    blueprint.get("/", endpoint="in")(lambda: "in")
    app.register_blueprint(blueprint)
    table.do('app.wsgi_app = RateLimitMiddleware(app.wsgi_app, limit="100/min")')
    assert app.test_client().get("/").headers["ratelimit-policy"] == '"requests";q=100;w=60,"api";q=5;w=60'
    assert codes(app.test_client(), 5) == [200] * 4 + [429]
    exempt = Flask(__name__)
    exempt.get("/")(lambda: "ok")
    paths = table.options("exempt=[paths]", paths='"/"')
    exempt.wsgi_app = WsgiLimit(exempt.wsgi_app, limit="1/min", **paths)  # type: ignore[method-assign]
    assert codes(exempt.test_client(), 3) == [200] * 3
    table.is_done("by", "cost", "attributes")


def test_from_django_ratelimit(redis_server: Redis, namespace: str) -> None:
    table = Table("guide/python.md", "Migrating from django-ratelimit", limit=django.Limits(), verdict_of=django.verdict_of)

    def view(limited: Any, answer: Any = django_home) -> Any:
        return limited(answer)

    def asked(view: Any, *requests: HttpRequest) -> list[int]:
        return [view(request).status_code for request in requests]

    get, post = RequestFactory().get, RequestFactory().post
    assert asked(view(table.value('@limit("5/min")')), *[get("/") for _ in range(6)]) == [200] * 5 + [429]
    shared = table.options('name="login"')
    first, second = (view(table.names["limit"]("1/min", **shared)) for _ in range(2))
    assert asked(first, get("/")) + asked(second, get("/")) == [200, 429]
    for code, requests in (
        ("by=lambda request: request.POST.get(\"username\")", [post("/", {"username": name}) for name in "aba"]),
        ('"header.x-api-key"', [get("/", headers={"x-api-key": key}) for key in "aba"]),
        ('"query.q"', [get(f"/?q={word}") for word in "aba"]),
    ):
        options = table.options(code) if code.startswith("by=") else {"by": table.value(code)}
        assert asked(view(django.Limits()("1/min", **options)), *requests) == [200, 200, 429], code
    for options in (table.options('by="user"'), {"by": table.value('"user|ip"')}):
        requests = [get("/") for _ in range(3)]
        for one, name in zip(requests, "aba"):
            one.user = type("User", (), {"id": name})()  # type: ignore[assignment]
        assert asked(view(django.Limits()("1/min", **options)), *requests) == [200, 200, 429]
    posts = view(django.Limits()("1/min", **table.options('exempt=lambda request: request.method != "POST"')))
    assert asked(posts, get("/"), get("/"), post("/"), post("/")) == [200, 200, 200, 429]
    table.names["HttpResponse"] = HttpResponse
    own = table.options("on_denied=lambda request, verdict: ...", **{"...": 'HttpResponse("slow down")'})
    limited = view(django.Limits()("1/min", **own))
    assert asked(limited, get("/")) == [200] and limited(get("/")).content == b"slow down"

    assert "annotate" in table._of("mode: annotate", {})
    soft = table._of("verdict_of(request).annotations", {})
    rules = [{"name": "soft", "key": "{ip}", "limit": "1/min", "mode": "annotate"}]

    def over(request: HttpRequest) -> HttpResponse:
        return HttpResponse(str(len(eval(soft, table.names, {"request": request}))))

    site = site_of(over, rules=rules)
    assert [site(get("/")).content for _ in range(2)] == [b"0", b"1"]

    for code, count in (('TOLLKEEPER = {..., "enabled": False}', 3), ('TOLLKEEPER = {..., "store": "redis://..."}', 1)):
        table.do(code, **{"{...,": f'{{"namespace": "{namespace}",', "redis://...": redis_server.url})
        with override_settings(TOLLKEEPER=table.names["TOLLKEEPER"]):
            limited = view(django._SiteLimits()("1/min", by="ip", name="of-the-settings"))
            assert asked(limited, *[get("/") for _ in range(3)]) == [200] * count + [429] * (3 - count)
    table.is_done("attributes")


class Routes:
    """An application of FastAPI, to which a test adds limited routes."""

    def __init__(self) -> None:
        self.app = FastAPI()
        self.client = TestClient(self.app)

    def add(self, path: str, dependency: Any, methods: tuple[str, ...] = ("GET",), status: int = 200) -> str:
        self.app.add_api_route(path, lambda: "ok", dependencies=[dependency], methods=list(methods), status_code=status)
        return path

    def codes(self, path: str, count: int, method: str = "GET") -> list[int]:
        return [self.client.request(method, path).status_code for _ in range(count)]


def test_from_fastapi_limiter(redis_server: Redis, namespace: str) -> None:
    names = {"limit": fastapi.Limits(), "Depends": Depends, "Limits": fastapi.Limits, "keyed": keyed, "key": "socket"}
    table, routes = Table("guide/python.md", "Migrating from fastapi-limiter", **names), Routes()
    assert routes.codes(routes.add("/", table.value('Depends(limit("2/5s"))')), 3) == [200, 200, 429]
    table.do('limit = Limits(store="redis://...")', **{"redis://...": f'{redis_server.url}", namespace="{namespace}'})
    assert routes.codes(routes.add("/redis", Depends(table.names["limit"]("1/min"))), 2) == [200, 429]
    table.do('messages = keyed("10/s")')
    assert table.value("messages.check(key)").remaining == 9
    table.is_done("by", "on_denied", "RateLimitExceeded")


def test_from_slowapi(redis_server: Redis, namespace: str) -> None:
    routes = Routes()
    names = {"app": routes.app, "RateLimitMiddleware": AsgiLimit, "PlainTextResponse": PlainTextResponse, "Depends": Depends}
    own = {"limit": fastapi.Limits(), "Limits": fastapi.Limits, "verdict_of": fastapi.verdict_of}
    table = Table("howto/from-slowapi.md", "From slowapi", **names, **own)

    def limited(code: str, **replace: str) -> Any:
        return Depends(fastapi.Limits()("1/min", **table.options(code, **replace)))

    several = Depends(table.names["limit"](table.value('["5/min", "100/h"]')))
    assert routes.codes(routes.add("/several", several), 6) == [200] * 5 + [429]
    assert routes.codes(routes.add("/one", Depends(table.names["limit"](table.value('"5/min"')))), 6) == [200] * 5 + [429]
    (simple,) = table.options('dependencies=[Depends(limit("5/min"))]')["dependencies"]
    assert routes.codes(routes.add("/simple", simple), 6) == [200] * 5 + [429]
    shared = Depends(table.value('limit("5/min", name="login")'))
    assert routes.codes(routes.add("/a", shared), 3) + routes.codes(routes.add("/b", shared), 3) == [200] * 5 + [429]
    assert routes.codes(routes.add("/exempt", limited("exempt=lambda request: ...")), 3) == [200] * 3
    posts = routes.add("/posts", limited('exempt=lambda request: request.method != "POST"'), ("GET", "POST"))
    assert routes.codes(posts, 2) + routes.codes(posts, 2, "POST") == [200, 200, 200, 429]
    assert routes.codes(routes.add("/cost", Depends(fastapi.Limits()("5/min", **table.options("cost=3")))), 2) == [200, 429]
    own = routes.add("/own", limited('on_denied=lambda request, verdict: PlainTextResponse("...")'))
    assert routes.codes(own, 2) == [200, 429] and routes.client.get(own).text == "..."
    own = routes.add("/answer", limited("on_denied=lambda request, verdict: ...", **{"...": 'PlainTextResponse("no")'}))
    assert routes.codes(own, 2) == [200, 429] and routes.client.get(own).text == "no"
    by = routes.add("/by", limited("by=...", **{"...": 'lambda request: request.headers["x-key"]'}))
    assert [routes.client.get(by, headers={"x-key": key}).status_code for key in "aba"] == [200, 200, 429]
    store = table.options('store="redis://..."', **{"redis://...": redis_server.url})
    on_redis = Depends(fastapi.Limits(**store, namespace=namespace)("1/min"))
    assert routes.codes(routes.add("/redis", on_redis), 2) == [200, 429]
    proxies = table.options("trusted_proxies=[...]", **{"...": '"10.0.0.0/8"'})
    style = table.options('headers="x-ratelimit-epoch"')
    exempt = table.options('exempt=["/healthz"]')
    client = TestClient(AsgiLimit(routes.app, limit="9/min", **exempt, **proxies, **style))
    assert "x-ratelimit-limit" not in client.get("/healthz").headers and client.get("/no").headers["x-ratelimit-limit"] == "9"
    routes.add("/limited", Depends(table.value("Limits")(**style)("5/min")))
    found = client.get("/limited").headers
    assert "x-ratelimit-limit" in found and "ratelimit" not in found
    table.do("limit.enabled = False")
    assert routes.codes("/simple", 2) == [200, 200]
    assert table._of('await limit.limiter.reset("login", key)', {})
    assert table.names["limit"].limiter.reset_sync("login", "testclient")
    assert table._of("verdict_of(request)", {}) and table._of("request", {})
    other = Routes()
    table.names["app"] = other.app
    table.do('app.add_middleware(RateLimitMiddleware, limit="100/min")')
    assert other.client.get("/").headers["ratelimit-policy"] == '"requests";q=100;w=60'
    table.is_done("tollkeeper.fastapi", "attributes")


def test_from_limits(redis_server: Redis, namespace: str) -> None:
    table = Table("guide/python.md", "Migrating from limits", keyed=keyed, Limiter=Limiter)
    assert table.value('keyed("10/min algorithm fixed_window").check("key").allowed') is True
    fields = [table._of(name, {}) for name in ("remaining", "reset_after")]
    for name in ("algorithm sliding_window_log", "algorithm sliding_window_counter"):
        decision = keyed(f"10/min {table._of(name, {})}").check("key")
        assert [getattr(decision, field) > 0 for field in fields] == [True, True] and decision.remaining == 9
    one = {"keyed(...)": "one"}
    table.names["one"] = keyed("10/min")
    assert table.value('keyed(...).check("key", 3)', **one).remaining == 7
    assert table.value('keyed(...).peek("key")', **one).remaining == 7
    assert table.value('keyed(...).reset("key")', **one) is True
    replaced = {"[...]": '["10/s by user"]', "redis://...": f'{redis_server.url}", timeout=5, namespace="{namespace}'}
    limiter = table.value('Limiter.from_rules([...], store="redis://...")', **replaced)
    check = table._of("await limiter.check({...})", {"await ": "", "{...}": '{"user": "a"}'})

    async def main() -> Any:
        return await eval(check, {"limiter": limiter})

    assert asyncio.run(main()).source == "store"
    # One for each namespace.
    table.is_done("keyed(...)")


def test_from_pyrate_limiter() -> None:
    table = Table("guide/python.md", "Migrating from pyrate-limiter", keyed=keyed, Limiter=Limiter)
    table.names["limiter"] = table.value('Limiter.from_rules(["5/s by user", "100/h by user"])')
    assert table.value('limiter.check_sync({"user": "key"}, cost=2)').rules[1].remaining == 98
    assert table.value('keyed("5/s").check("key", 2)').remaining == 3
    paced = keyed(f"10/s burst 2 {table._of('algorithm leaky_bucket', {})}")
    decisions = [paced.check("key") for _ in range(3)]
    assert getattr(decisions[0], table._of("delay", {})) == 0 and decisions[1].delay > 0
    assert getattr(decisions[2], table._of("retry_after", {})) > 0
    table.is_done('store="redis://..."')


def advice(page: str, pattern: str, **names: Any) -> Any:
    """What a page says to write, in place of three dots or in the middle of a sentence."""
    found = re.search(pattern, (DOCS / page).read_text())
    assert found, f"{page} no longer says {pattern}"
    return eval(found[1], names)


def test_cors() -> None:
    """In the order that the page gives, preflight requests do not count, and a script can read a denial."""
    assert "add `CORSMiddleware` after the limit" in (DOCS / "howto/fastapi.md").read_text()
    routes = Routes()
    routes.app.get("/")(lambda: "ok")
    routes.app.add_middleware(AsgiLimit, limit="1/min")
    exposed = advice("howto/fastapi.md", r"`expose_headers=(\[.*?\])`")
    routes.app.add_middleware(CORSMiddleware, allow_origins=["https://example.org"], expose_headers=exposed)
    origin = {"origin": "https://example.org"}
    preflight = {**origin, "access-control-request-method": "GET"}
    assert [routes.client.options("/", headers=preflight).status_code for _ in range(3)] == [200] * 3
    answers = [routes.client.get("/", headers=origin) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]
    assert answers[1].headers["access-control-allow-origin"] == "https://example.org"
    assert answers[1].headers["access-control-expose-headers"] == "Retry-After"


def test_unix_sockets() -> None:
    proxies = {"trusted_proxies": ["127.0.0.1"]}
    for page in ("howto/flask.md", "guide/python.md"):
        address = advice(page, r"`address=(lambda environ: .*?)[,`]\s?")
        app = Flask(__name__)
        app.get("/")(flask.Limits(address=address, **proxies)("1/min")(lambda: "ok"))
        app.wsgi_app = WsgiLimit(app.wsgi_app, limit="9/min", address=address, **proxies)  # type: ignore[method-assign]
        for client in ("1.1.1.1", "2.2.2.2"):
            unix: Any = {"headers": {"x-forwarded-for": client}, "environ_overrides": {"REMOTE_ADDR": ""}}
            assert [app.test_client().get("/", **unix).status_code for _ in range(2)] == [200, 429]
    of_django = advice("howto/django.md", r'"address": (lambda request: .*?)`')
    site = site_of(django_home, limit="1/min", address=of_django, **proxies)
    of_scope = advice("guide/python.md", r"`(lambda scope: None if .*?)`")
    routes = Routes()
    routes.app.get("/")(lambda: "ok")
    limited = AsgiLimit(routes.app, limit="1/min", address=of_scope, **proxies)

    async def on_a_socket(scope: Any, receive: Any, send: Any) -> None:
        await limited({**scope, "client": None}, receive, send)

    for client in ("1.1.1.1", "2.2.2.2"):
        headers = {"x-forwarded-for": client}
        made = [RequestFactory().get("/", headers=headers, REMOTE_ADDR="") for _ in range(2)]
        assert [site(one).status_code for one in made] == [200, 429]
        assert [TestClient(on_a_socket).get("/", headers=headers).status_code for _ in range(2)] == [200, 429]


def test_rules_of_plans_replace_functions_as_limits() -> None:
    """Three tables name them in place of a function."""
    tables = [("guide/python.md", f"Migrating from {name}") for name in ("flask-limiter", "django-ratelimit")]
    for page, title in [*tables, ("howto/from-slowapi.md", "From slowapi")]:
        assert "attributes" in Table(page, title).left
    rules = [{"name": plan, "when": {"plan": plan}, "key": "{ip}", "limit": f"{count}/min"} for plan, count in (("a", 1), ("b", 2))]
    limiter = Limiter.from_rules(rules)
    routes = Routes()
    plans = fastapi.Limits()(limiter=limiter, attributes=lambda request: {"plan": request.query_params["plan"]})
    routes.add("/", Depends(plans))
    assert routes.codes("/?plan=a", 2) + routes.codes("/?plan=b", 3) == [200, 429, 200, 200, 429]
