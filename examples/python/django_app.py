"""Django in one file: the middleware for everything, the decorator for logging in.

    gunicorn django_app:application
"""

import os

import django
from django.conf import settings

settings.configure(
    SECRET_KEY=os.environ.get("SECRET_KEY", "only for this example"),
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=["tollkeeper.django.RateLimitMiddleware"],
    TOLLKEEPER={"limit": "100/min burst 20", "store": os.environ.get("STORE", "memory:")},
)
django.setup()

from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.http import HttpRequest, HttpResponse  # noqa: E402
from django.urls import path  # noqa: E402

from tollkeeper.django import limit  # noqa: E402


@limit("5/min", by="ip")
def login(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok")


def home(request: HttpRequest) -> HttpResponse:
    return HttpResponse("home")


urlpatterns = [path("", home), path("login", login)]
application = get_wsgi_application()
