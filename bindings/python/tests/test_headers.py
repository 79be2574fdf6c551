"""The limit headers of several layers on one request: written once, in one style."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory, override_settings
from django.urls import path
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient
from flask import Flask
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from test_django import home as django_home
from werkzeug.test import Client as WSGIClient

from tollkeeper import asgi, django, fastapi, flask, wsgi


def starlette(outer: dict[str, Any], inner: dict[str, Any]) -> Any:
    app = Starlette(routes=[Route("/", lambda _: PlainTextResponse("home"))])
    limited = asgi.RateLimitMiddleware(app, "2/min", name="inner", **inner)
    return TestClient(asgi.RateLimitMiddleware(limited, "9/min", name="outer", **outer))


def fastapi_route(outer: dict[str, Any], inner: dict[str, Any]) -> Any:
    app = FastAPI()
    app.add_middleware(asgi.RateLimitMiddleware, "9/min", name="outer", **outer)
    app.get("/", dependencies=[Depends(fastapi.Limits(**inner)("2/min", name="inner"))])(lambda: "home")
    return TestClient(app)


def fastapi_routes(outer: dict[str, Any], inner: dict[str, Any]) -> Any:
    app = FastAPI()
    limits = [fastapi.Limits(**outer)("9/min", name="outer"), fastapi.Limits(**inner)("2/min", name="inner")]
    app.get("/", dependencies=[Depends(limit) for limit in limits])(lambda: "home")
    return TestClient(app)


def flask_route(outer: dict[str, Any], inner: dict[str, Any]) -> Any:
    app = Flask(__name__)
    app.get("/")(flask.Limits(**inner)("2/min", name="inner")(lambda: "home"))
    app.wsgi_app = wsgi.RateLimitMiddleware(app.wsgi_app, "9/min", name="outer", **outer)  # type: ignore[method-assign]
    return app.test_client()


def flask_routes(outer: dict[str, Any], inner: dict[str, Any]) -> Any:
    app = Flask(__name__)
    limits = flask.Limits(**outer)("9/min", name="outer"), flask.Limits(**inner)("2/min", name="inner")
    app.get("/")(limits[0](limits[1](lambda: "home")))
    return app.test_client()


class django_view:
    def __init__(self, outer: dict[str, Any], inner: dict[str, Any]) -> None:
        view: Any = django.Limits(**inner)("2/min", name="inner")(django_home)
        with override_settings(TOLLKEEPER={"limit": "9/min", "name": "outer", **outer}):
            self.respond = django.RateLimitMiddleware(view)

    def get(self, url: str) -> HttpResponse:
        request: HttpRequest = RequestFactory().get(url)
        response: HttpResponse = self.respond(request)
        return response


class django_within:
    """In the middleware of WSGI or ASGI."""

    def __init__(self, outer: dict[str, Any], inner: dict[str, Any]) -> None:
        view = django.Limits(**inner)("2/min", name="inner")(django_home)
        self.settings: dict[str, Any] = {"MIDDLEWARE": [], "ROOT_URLCONF": (path("", view),)}
        with override_settings(**self.settings):
            self.client = self.around(outer)

    def around(self, outer: dict[str, Any]) -> Any:
        client = WSGIClient(wsgi.RateLimitMiddleware(get_wsgi_application(), "9/min", name="outer", **outer))
        return SimpleNamespace(get=partial(client.get, environ_overrides={"REMOTE_ADDR": "127.0.0.1"}))

    def get(self, url: str) -> Any:
        with override_settings(**self.settings):
            return self.client.get(url)


class django_within_asgi(django_within):
    def around(self, outer: dict[str, Any]) -> Any:
        return TestClient(asgi.RateLimitMiddleware(get_asgi_application(), "9/min", name="outer", **outer))


def limits_of(response: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items() if "ratelimit" in name.lower()}


@pytest.mark.parametrize("layers", [starlette, fastapi_route, fastapi_routes, flask_route, flask_routes, django_view, django_within, django_within_asgi])
def test_layers_with_different_styles_are_written_once_in_one(layers: Any) -> None:
    """The middleware had the style that the clients understand, and a route without one wrote the default instead; two dependencies of
    FastAPI wrote both, and so did a view of Django in the middleware of WSGI or ASGI."""
    delta, policies = {"headers": "x-ratelimit-delta"}, '"outer";q=9;w=60,"inner";q=2;w=60'
    names = {"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"}
    for outer, inner in ((delta, {}), ({}, delta), ({"headers": "draft-06"}, delta)):
        client = layers(outer, inner)
        answers = [client.get("/") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        for answer in answers:
            assert set(limits_of(answer)) == names and limits_of(answer)["x-ratelimit-limit"] == "2"
    answers = [layers({}, {}).get("/"), layers(delta, {"headers": "draft-07"}).get("/"), layers(delta, {"headers": "none"}).get("/")]
    assert [limits_of(answer).get("ratelimit-policy") for answer in answers] == [policies, "9;w=60, 2;w=60", None]
    assert len(limits_of(answers[1])) == 2 and not limits_of(answers[2])
