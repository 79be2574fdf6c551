"""Answers of a running service: headers, problems, RESP commands."""

import json
import re
import subprocess
import sys

from markdown import REPOSITORY
from parts.service import Service


def headers(style):
    rules = "\n".join(
        ["rules:", '  - { name: daily, key: "{ip}", limit: 2/day, burst: 2 }', '  - { name: hourly, key: "{ip}", limit: 100/h, algorithm: fixed_window }']
    )
    with Service(f"headers: {style}\n{rules}\n") as service:
        passed = service.ask("/v1/authorize")
        service.ask("/v1/authorize")
        denied = service.ask("/v1/authorize")
    return "\n\n".join(
        [f"A request that passes:\n\n{headers_text(passed)}", f"The third request of the day, which is denied:\n\n{headers_text(denied)}"]
    )


def headers_text(answer):
    status, fields, _ = answer
    name = {200: "OK", 429: "Too Many Requests"}[status]
    shown = [f"{field}: {value}" for field, value in fields if field.lower().startswith(("ratelimit", "x-ratelimit", "retry-after"))]
    text = "\n".join([f"HTTP/1.1 {status} {name}", *shown])
    # What depends on the moment: the end of the hour, and seconds since the epoch.
    text = re.sub(r"\b1[0-9]{9}\b", "1767225600", text)
    text = re.sub(r"(\"hourly\";r=\d+;t=)\d+", r"\g<1>1800", text)
    return f"```http\n{text}\n```"


PROBLEMS = {
    "denied": "A limit is reached. `violated-policies` names the rules, `retry_after_ms` the exact wait. Wait as long as `Retry-After` says.",
    "unavailable": "The store cannot answer, and a rule with `on_store_failure: closed` applies. No limit was reached. Retry later; look at the store.",
    "field": "The request is invalid. `field` names what is wrong and `detail` says what to write. Unknown fields are errors too.",
    "json": "The body is not JSON.",
    "token": "The admin API needs a token: `Authorization: Bearer TOKEN`.",
    "not found": "There is no such route; the nearest one is suggested.",
    "method": "The route has other methods, listed in `Allow`.",
    "large": "The body is larger than 64 KiB.",
    "origin": "A page of another origin sent it (`Origin`, `Sec-Fetch-Site`). Programs send neither header.",
}


def problems():
    rules = 'rules: [{ name: login, key: "{ip}", limit: 1/day }]\n'
    closed = 'rules: [{ name: login, key: "{ip}", limit: 1/day, on_store_failure: closed }]\nstore: { url: "redis://127.0.0.1:1", required: false }\n'
    with Service(rules) as service:
        service.ask("/v1/authorize")
        found = {
            "denied": ("GET /v1/authorize", service.ask("/v1/authorize")),
            "field": ('POST /v1/check {"cost": "x"}', service.ask("/v1/check", "POST", '{"cost": "x"}')),
            "json": ("POST /v1/check {", service.ask("/v1/check", "POST", "{")),
            "token": ("GET /v1/rules", service.ask("/v1/rules")),
            "not found": ("GET /v1/chek", service.ask("/v1/chek")),
            "method": ("GET /v1/check", service.ask("/v1/check")),
            "large": ("POST /v1/check with 100 KB", service.ask("/v1/check", "POST", "x" * 100_000)),
            "origin": ("POST /v1/check from a page of another site", service.ask("/v1/check", "POST", "{}", {"Origin": "http://evil.example"})),
        }
    with Service(closed) as service:
        found["unavailable"] = ("GET /v1/authorize, Redis unreachable", service.ask("/v1/authorize"))
    text = []
    for name, meaning in PROBLEMS.items():
        request, (status, _, body) = found[name]
        document = json.loads(body)
        if name == "denied":
            # What depends on the moment.
            document["retry_after_ms"] = 86_399_000
        text.append(f"### {document['status']} {document['title']}: {name}\n\n{meaning}\n\n`{request}`\n\n```json\n{json.dumps(document, indent=2, ensure_ascii=False)}\n```")
    return "\n\n".join(text)


def resp_commands():
    with Service('rules: [{ name: login, key: "{ip}", limit: 1/day }]\n', "--resp", "127.0.0.1:0") as service:
        done = subprocess.run(["redis-cli", "-p", service.resp, "COMMAND", "LIST"], capture_output=True, text=True, check=True)
    names = [name.upper() for name in done.stdout.split()]
    guide = (REPOSITORY / "docs/guide/resp.md").read_text()
    missing = [name for name in names if f"`{name}" not in guide]
    if missing or not names:
        sys.exit(f"docs/guide/resp.md does not describe {missing}")
    return "What the service answers to `COMMAND LIST`: " + ", ".join(f"`{name}`" for name in names) + "."
