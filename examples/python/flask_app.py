"""Flask with a limit on everything and a stricter one on logging in.

    gunicorn flask_app:app
"""

import os

from flask import Flask

from tollkeeper.flask import Limits
from tollkeeper.wsgi import RateLimitMiddleware

STORE = os.environ.get("STORE", "memory:")  # "redis://127.0.0.1:6379" for several processes

app = Flask(__name__)
app.wsgi_app = RateLimitMiddleware(app.wsgi_app, limit="100/min burst 20", store=STORE)  # type: ignore[method-assign]
limit = Limits(store=STORE)


@app.get("/")
def home() -> str:
    return "home"


@app.post("/login")
@limit("5/min", by="ip")
def login() -> str:
    return "ok"
