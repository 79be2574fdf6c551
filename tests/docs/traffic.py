"""Requests for docs/guide/insight.md: somebody who guesses passwords, users whose limit is too low, and requests without a plan."""

import json
import time
import urllib.request


def ask(checks):
    body = json.dumps({"checks": [{"attributes": each} for each in checks]}).encode()
    urllib.request.urlopen("http://127.0.0.1:8080/v1/check", body).read()


# Again and again, so that it shows who does not wait.
attacker = {"ip": "203.0.113.9", "path": "/login"}
for _ in range(4):
    ask([attacker] * 100)
    for _ in range(2):
        ask([{"user_id": str(user), "plan": "free"} for user in range(40)])
    time.sleep(0.5)
ask([{"user_id": "1", "ip": "198.51.100.1", "path": "/"}] * 300)
