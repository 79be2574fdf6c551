"""Django REST framework in one file: a rate for all views, and a stricter one for logging in.

    gunicorn drf_app:application
"""

import os

import django
from django.conf import settings

settings.configure(
    SECRET_KEY=os.environ.get("SECRET_KEY", "only for this example"),
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "rest_framework"],
    REST_FRAMEWORK={
        "DEFAULT_THROTTLE_CLASSES": ["tollkeeper.rest_framework.UserRateThrottle", "tollkeeper.rest_framework.ScopedRateThrottle"],
        "DEFAULT_THROTTLE_RATES": {"user": ["10/s burst 20", "1000/day"], "login": "5/min"},
    },
    TOLLKEEPER={"store": os.environ.get("STORE", "memory:")},  # "redis://127.0.0.1:6379" for several processes
)
django.setup()

from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.urls import path  # noqa: E402
from rest_framework.request import Request  # noqa: E402
from rest_framework.response import Response  # noqa: E402
from rest_framework.views import APIView  # noqa: E402


class Login(APIView):
    throttle_scope = "login"

    def post(self, request: Request) -> Response:
        return Response({"ok": True})


urlpatterns = [path("login", Login.as_view())]
application = get_wsgi_application()
