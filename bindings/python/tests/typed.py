"""A program as users write it, for type checkers: see `test_examples.py`. It is not run."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.views import View
from fastapi import Depends, FastAPI, Request
from flask import Flask
from rest_framework.response import Response
from rest_framework.views import APIView

from tollkeeper import Limiter, Quota, Verdict, django, fastapi, flask
from tollkeeper.asgi import RateLimitMiddleware
from tollkeeper.rest_framework import AnonRateThrottle, RateThrottle, UserRateThrottle

limiter = Limiter.from_rules([{"name": "free", "when": {"plan": "free"}, "key": "{customer|ip}", "limit": "1/day"}])


async def plan_of(request: Request) -> dict[str, str | None]:
    return {"plan": "free", "customer": request.headers.get("x-key")}


api = FastAPI()
api.add_middleware(RateLimitMiddleware, limiter=limiter, attributes=lambda scope: {"plan": "free"})
logins = fastapi.Limits(headers="draft-07")(["5/min", Quota.per_minute(5)], name="login")


@api.get("/", dependencies=[Depends(fastapi.limit(limiter=limiter, attributes=plan_of)), Depends(logins)])
async def api_home() -> str:
    return "home"


site = Flask(__name__)


@site.get("/")
@flask.limit(limiter=limiter, attributes=lambda request: {"plan": request.headers.get("x-plan")}, on_denied=lambda *_: ("slow down", 429))
def site_home() -> str:
    return "home"


def slower(request: HttpRequest, verdict: Verdict) -> HttpResponse:
    return HttpResponse(f"{request.path}: {verdict.retry_after}")


@django.limit("5/min", by="user|ip", on_denied=slower)
async def home(request: HttpRequest) -> HttpResponse:
    return HttpResponse(request.path)


@method_decorator(django.limit("5/min"), name="dispatch")
class Page(View):
    async def get(self, request: HttpRequest) -> HttpResponse:
        return await home(request)


class Login(AnonRateThrottle):
    scope = "login"

    def get_cache_key(self, request: Any, view: Any) -> str | None:
        return self.get_ident(request)


class ButStaff(UserRateThrottle):
    rate = "5/min"

    def get_cache_key(self, request: Any, view: Any) -> str | None:
        return None if request.user.is_staff else super().get_cache_key(request, view)


# A list was refused: the framework's own rates are texts.
class Several(RateThrottle):
    scope = "several"
    rate = ["10/s", "1000/day"]


class Files(APIView):
    throttle_classes = [Login, ButStaff, Several]

    def get(self, _request: Any) -> Response:
        return Response([])
