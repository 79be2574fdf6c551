"""Writes the parts of the pages that come from the code, so that they cannot go stale.

    ./run reference        writes them
    ./run pages            compares them, and says which differ

A part stands between two comments, `<!-- generated: KIND ARGUMENTS -->` and `<!-- /generated -->`. What it can be is in
PARTS at the end. Most are answers of the service itself, so it needs the binary in target/debug.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from functools import cache
from pathlib import Path

from examples import AROUND, BESIDE, EXAMPLES
from markdown import REPOSITORY, pages, slug
from queries import QUERIES

BINARY = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")).resolve() / "debug" / "tollkeeper"
PART = re.compile(r"(<!-- generated: ([^\n]+) -->\n)[^\0]*?(<!-- /generated -->)")
# Without variables of this machine: `--help` shows them.
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("TOLLKEEPER_", "OTEL_"))}


def tollkeeper(*arguments, **options):
    return subprocess.run([BINARY, *arguments], env=CLEAN, capture_output=True, text=True, **options)


# A file of the repository.


def file(name, language=None):
    language = language or {".yaml": "yaml", ".py": "python", ".mjs": "js", ".rs": "rust", ".conf": "nginx", ".lua": "lua", ".go": "go", ".java": "java"}.get(
        Path(name).suffix, "text"
    )
    text = (REPOSITORY / name).read_text().rstrip("\n")
    return f"```{language}\n{text}\n```"


# Figures, from the tables of the benchmarks.


def figures(name, heading, first, *columns):
    """Some columns of the table under a heading whose first column is `first`; a heading `-` is the whole page."""
    lines = (REPOSITORY / name).read_text().splitlines()
    start = next((at for at, line in enumerate(lines) if line.strip("# ") == heading), None) if heading != "-" else 0
    if start is None:
        sys.exit(f"{name} has no heading {heading!r} any more, whose figures pages quote")
    tables, inside = [], False
    for line in lines[start + 1 :]:
        if line.startswith("## ") and heading != "-":
            break
        if line.startswith("|"):
            tables += [] if inside else [[]]
            tables[-1].append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
        inside = line.startswith("|")
    found = next((each for each in tables if each[0][0] == first), None)
    if found is None:
        sys.exit(f"{name}, {heading}: there is no table any more whose first column is {first!r}, which a page quotes")
    head, _, *rows = found
    columns = [first, *columns] if columns else head
    missing = [column for column in columns if column not in head]
    if missing:
        sys.exit(f"{name}, {heading}: the table has no column {missing}; it has {head}")
    chosen = range(len(head)) if columns is head else [head.index(column) for column in columns]
    return table([head[at] for at in chosen], [[row[at] for at in chosen] for row in rows])


# The configuration file, from its schema.


@cache
def schema():
    return json.loads(tollkeeper("schema", check=True).stdout)


def resolved(field):
    """A field with what its reference says, and its own description and default."""
    for options in [field.get("anyOf", []), field.get("oneOf", [])]:
        references = [each for each in options if "$ref" in each]
        if len(references) == 1 and all("$ref" in each or each.get("type") == "null" for each in options):
            field = {**field, **references[0]}
            field.pop("anyOf", None)
    if "$ref" in field:
        target = schema()["$defs"][field["$ref"].rsplit("/", 1)[1]]
        return {**target, **{name: value for name, value in field.items() if name != "$ref"}}
    return field


def kind(field):
    field = resolved(field)
    if "oneOf" in field:
        return "one of these"
    if "anyOf" in field:
        kinds = [kind(each) for each in field["anyOf"]]
        return " or ".join(dict.fromkeys(each for each in kinds if each != "null"))
    types = field.get("type", [])
    types = [types] if isinstance(types, str) else [each for each in types if each != "null"]
    names = {"string": "text", "integer": "whole number", "boolean": "`true` or `false`", "object": "map", "number": "number", "null": "null"}
    if types == ["array"]:
        return f"list of {kind(field['items'])}"
    if types == ["object"] and isinstance(field.get("additionalProperties"), dict):
        return f"map to {kind(field['additionalProperties'])}"
    return " or ".join(names[each] for each in types) or "map"


def bounds(field):
    field = resolved(field)
    low, high = field.get("minimum"), field.get("maximum")
    if low is not None and high is not None:
        return f"; {low:,} to {high:,}"
    return f"; at least {low:,}" if low else ""


def default(field, required):
    if required:
        return "required"
    value = resolved(field).get("default")
    return "" if value in (None, {}, []) or isinstance(value, dict) else f"default `{json.dumps(value) if isinstance(value, bool | int) else value}`"


def sections():
    """(path, definition) of every map that the file has, in the order of a file."""
    order = ["rules", "listen", "store", "trusted_proxies"]
    found = [("", schema())]
    at = 0
    while at < len(found):
        path, section = found[at]
        at += 1
        names = sorted(section["properties"], key=lambda name: (order.index(name) if name in order else 99, name))
        for name in names:
            field = resolved(section["properties"][name])
            inside = resolved(field["items"]) if field.get("type") == "array" and "items" in field else field
            place = f"{path}{name}" + ("[]" if inside is not field else "")
            if inside.get("properties"):
                found.append((f"{place}.", inside))
            for each in inside.get("anyOf", []):
                each = resolved(each)
                is_list = each.get("type") == "array"
                each = resolved(each["items"]) if is_list else each
                if each.get("properties"):
                    found.append((f"{place}[]." if is_list else f"{place}.", each))
    return found


def configuration():
    missing, known, text = [], set(), []
    inside = {path.rstrip(".").removesuffix("[]"): path.rstrip(".") for path, _ in sections()}
    for path, section in sections():
        title = f"`{path.rstrip('.')}`" if path else "The file"
        purpose = section.get("description", "") if path else ""
        rows = []
        for name, field in section["properties"].items():
            place = f"{path}{name}"
            known.add(place)
            example = EXAMPLES.get(place)
            if example is None:
                missing.append(place)
                continue
            meaning = plain(resolved(field).get("description", ""))
            for value in resolved(field).get("oneOf", []):
                meaning += f"<br>`{value['const']}`: {plain(value.get('description', ''))}"
            usual = default(field, name in section.get("required", []))
            # Two columns, which fit on a phone.
            named = f"[`{name}`](#{slug(inside[place])})" if place in inside else f"`{name}`"
            about = "<br>".join(each for each in [named, kind(field) + bounds(field), usual] if each)
            rows.append([about, f"{meaning}<br>Example: `{example}`"])
        text.append("\n\n".join(each for each in [f"## {title}", plain(purpose), table(["field, type, default", "meaning, and an example"], rows)] if each))
    if missing or EXAMPLES.keys() - known:
        sys.exit(f"tests/docs/examples.py: no example of {missing}; examples of unknown fields {sorted(EXAMPLES.keys() - known)}")
    validate_examples()
    return "\n\n".join(text)


def validate_examples():
    """Every example is accepted in a file that has little else."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tollkeeper.yaml")
        for place in EXAMPLES:
            path.write_text(document(place))
            done = tollkeeper("validate", str(path))
            if done.returncode:
                sys.exit(f"tests/docs/examples.py: the example of {place} is not valid:\n{path.read_text()}{done.stdout}{done.stderr}")


def document(place):
    *outside, field = place.split(".")
    text = ", ".join([EXAMPLES[place], *BESIDE.get(place, [])])
    given = [field, *(each.split(":")[0] for each in BESIDE.get(place, []))]
    for name in reversed(outside):
        text = ", ".join([text, *(each for each in AROUND.get(name, []) if each.split(":")[0] not in given)])
        text = f"{name[:-2]}: [{{ {text} }}]" if name.endswith("[]") else f"{name}: {{ {text} }}"
        given = []
    rules = "" if place.startswith("rules") and not place.startswith("rules_snapshot") else f"rules: [{{ {', '.join(AROUND['rules[]'])} }}]\n"
    return f"{text}\n{rules}"


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(re.sub(r"(?<!\\)\|", r"\|", cell).strip() for cell in line) + " |" for line in lines)


# Commands, from their help.


def commands():
    return "\n\n".join(command_text(path) for path in command_paths([]))


def command_paths(path):
    help_text = tollkeeper(*path, "--help", check=True).stdout
    listed = re.search(r"^Commands:\n(.*?)\n\n", help_text, re.S | re.M)
    names = re.findall(r"^  (\w[\w-]*) ", listed[1], re.M) if listed else []
    yield path
    for name in names:
        if name != "help":
            yield from command_paths([*path, name])


def command_text(path):
    text = tollkeeper(*path, "--help", check=True).stdout.strip()
    # An empty value of a variable is shown as `[env: NAME=]`.
    text = re.sub(r"\[env:(\s+)(\w+)=\]", r"[env:\1\2]", text)
    about, _, rest = text.partition("\n\n")
    name = " ".join(["tollkeeper", *path])
    return f"{'#' * (2 + max(0, len(path) - 1))} `{name}`\n\n{re.sub(chr(10), ' ', about).rstrip('.')}.\n\n```text\n{rest}\n```"


# Metrics, from the catalog of the service.

CATALOG = REPOSITORY / "crates/server/src/metrics/catalog.rs"
FAMILY = re.compile(r'^    [A-Z_]+ (\w+) (\w+) "(\w+)" \[(.*?)\]\s+"(.*?)";', re.M)


def families():
    found = FAMILY.findall(CATALOG.read_text())
    names = [name for _, _, name, _, _ in found]
    if len(found) != len(re.findall(r"^    [A-Z_]+ \w+ \w+ \"", CATALOG.read_text(), re.M)):
        sys.exit(f"{CATALOG} is written in a way that tests/docs/reference.py does not understand")
    if set(names) != QUERIES.keys():
        sys.exit(f"tests/docs/queries.py: missing {set(names) - QUERIES.keys()}, unknown {QUERIES.keys() - set(names)}")
    return found


def metrics():
    check_queries()
    text = []
    for kind_, _, name, labels, about in families():
        question, query = QUERIES[name]
        labels = labels.replace('"', "`")
        of = f" by {labels}" if labels else ""
        text.append(f"### `{name}`\n\n{about} *{kind_}{of}*\n\n{question}\n\n```promql\n{query}\n```")
    return "\n\n".join(text)


def check_queries():
    """Prometheus reads every query."""
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as rules:
        records = [{"record": "example", "expr": query} for _, query in QUERIES.values()]
        json.dump({"groups": [{"name": f"group{at}", "rules": [each]} for at, each in enumerate(records)]}, rules)
        rules.flush()
        done = subprocess.run(["promtool", "check", "rules", rules.name], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"tests/docs/queries.py: {done.stdout}{done.stderr}")


# Alerts of Prometheus, from the file that is deployed.


@cache
def alerts():
    text = (REPOSITORY / "deploy/prometheus/alerts.yml").read_text()
    return dict(re.findall(r"^      - alert: (\w+)\n(.*?)(?=^      - alert:|\Z)", text, re.S | re.M))


def alert(name):
    body = alerts()[name]
    severity = re.search(r"severity: (\w+)", body)[1]
    wait = re.search(r"^        for: (\w+)", body, re.M)
    expression = re.search(r"^        expr: (?:>-\n(.*?)(?=^        \w)|(.*?)$)", body, re.S | re.M)
    query = "\n".join(line.strip() for line in (expression[1] or expression[2]).strip().splitlines())
    lasting = f", when this holds for {wait[1]}" if wait else ""
    return f"*Severity {severity}{lasting}:*\n\n```promql\n{query}\n```"


def every_alert_has_a_runbook():
    page = (REPOSITORY / "docs/reference/alerts.md").read_text()
    kinds = re.findall(r'Kind::\w+ => "(\w+)"', (REPOSITORY / "crates/server/src/alerts/alert.rs").read_text())
    if "breaker_open" not in kinds or "TollkeeperDown" not in alerts():
        sys.exit("tests/docs/reference.py does not find the alerts any more")
    missing = [name for name in alerts() if f"generated: alert {name} " not in page]
    missing += [name for name in kinds if name != "test" and f"### `{name}`" not in page]
    missing += [name for name, body in alerts().items() if f"runbook: docs/reference/alerts.md#{slug(name)}\n" not in body]
    if missing:
        sys.exit(f"docs/reference/alerts.md: no runbook for {missing}")


# Answers of a running service.


class Service:
    """The service with these rules, on a free port."""

    def __init__(self, rules, *arguments):
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name, "tollkeeper.yaml")
        path.write_text(rules)
        environment = {**CLEAN, "HOME": self.folder.name, "XDG_RUNTIME_DIR": self.folder.name}
        self.log = open(Path(self.folder.name, "log"), "w+")
        command = [BINARY, "serve", "--config", path, "--http", "127.0.0.1:0", "--log", "off", *arguments]
        self.process = subprocess.Popen(command, env=environment, stdout=self.log, stderr=self.log)
        for _ in range(500):
            text = Path(self.folder.name, "log").read_text()
            if "dashboard:" in text or "admin" in text:
                break
            time.sleep(0.02)
        self.address = re.search(r"http://[0-9.:]+", text)[0]
        self.resp = (re.search(r"redis://127.0.0.1:(\d+)", text) or [None, None])[1]
        token = re.search(r"#token=(\S+)", text)
        self.token = token[1] if token else ""

    def ask(self, path, method="GET", body=None, headers=None):
        """Status, headers in order, and body."""
        request = urllib.request.Request(self.address + path, method=method, data=body and body.encode(), headers=headers or {})
        try:
            answer = urllib.request.urlopen(request)
        except urllib.error.HTTPError as error:
            answer = error
        return answer.status, answer.headers.items(), answer.read().decode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.log.close()
        self.folder.cleanup()


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


def openapi():
    with Service('rules: [{ name: login, key: "{ip}", limit: 1/day }]\n') as service:
        document = json.loads(service.ask("/openapi.json")[2])
    first = ["/v1/check", "/v1/authorize", "/v1/reserve", "/v1/reservations/{id}/settle", "/v1/release"]
    text = []
    for path, operations in sorted(document["paths"].items(), key=lambda each: (first.index(each[0]) if each[0] in first else 9, each[0])):
        shared = operations.get("parameters", [])
        described = {}
        for method, operation in operations.items():
            if method in METHODS:
                described.setdefault(operation_text(document, operation, shared), []).append(method.upper())
        # `/v1/authorize` answers every method alike.
        for about, methods in described.items():
            text.append(f"## `{methods[0] if len(methods) == 1 else 'ANY'} {path}`\n\n{about}")
    return "\n\n".join(text)


METHODS = ["get", "put", "post", "delete", "head", "patch", "options"]


def operation_text(document, operation, shared):
    parts = [operation.get("summary", "").rstrip(".") + "."]
    if operation.get("description"):
        parts.append(operation["description"])
    parameters = [followed(document, each) for each in [*shared, *operation.get("parameters", [])]]
    if parameters:
        rows = [[f"`{each['name']}`", each["in"], "yes" if each.get("required") else "", plain(each.get("description", ""))] for each in parameters]
        parts.append(table(["parameter", "in", "required", "meaning"], rows))
    body = followed(document, operation.get("requestBody", {}))
    for media in body.get("content", {}).values():
        for at, each in enumerate(alternatives(document, media.get("schema", {}))):
            rows = list(body_rows(document, each))
            if rows:
                parts.append(("Or:" if at else "The body:") + "\n\n" + table(["field", "type", "required", "meaning"], rows))
    answers = [[f"`{status}`", plain(followed(document, answer).get("description", ""))] for status, answer in operation.get("responses", {}).items()]
    parts.append(table(["status", "meaning"], answers))
    return "\n\n".join(part for part in parts if part.strip("."))


def followed(document, part):
    while "$ref" in part:
        target = document
        for name in part["$ref"].removeprefix("#/").split("/"):
            target = target[name]
        part = target
    return part


def alternatives(document, body):
    """What a body may be: one kind of object, or several."""
    body = followed(document, body)
    found = [*body.get("anyOf", []), *body.get("oneOf", [])]
    return [body] if "properties" in body or not found else found


def body_rows(document, body):
    body = followed(document, body)
    for each in [*body.get("anyOf", []), *body.get("oneOf", []), *body.get("allOf", [])]:
        yield from body_rows(document, each)
    for name, field in body.get("properties", {}).items():
        whole = {**followed(document, field), **{key: value for key, value in field.items() if key != "$ref"}}
        types = whole.get("type", "")
        types = types if isinstance(types, str) else " or ".join(each for each in types if each != "null")
        yield [f"`{name}`", types, "yes" if name in body.get("required", []) else "", plain(whole.get("description", ""))]


def plain(text):
    return re.sub(r"\s+", " ", text)


def resp_commands():
    with Service('rules: [{ name: login, key: "{ip}", limit: 1/day }]\n', "--resp", "127.0.0.1:0") as service:
        done = subprocess.run(["redis-cli", "-p", service.resp, "COMMAND", "LIST"], capture_output=True, text=True, check=True)
    names = [name.upper() for name in done.stdout.split()]
    guide = (REPOSITORY / "docs/guide/resp.md").read_text()
    missing = [name for name in names if f"`{name}" not in guide]
    if missing or not names:
        sys.exit(f"docs/guide/resp.md does not describe {missing}")
    return "What the service answers to `COMMAND LIST`: " + ", ".join(f"`{name}`" for name in names) + "."


# Keys in Redis, from a server on which every kind of state was made.

KEYS = [
    (r"tollkeeper:\{42\}\d+:\w+", "tollkeeper:{VALUE}VARIANT:RULE", "the state of one bucket. VALUE is the rendered key and the hash tag; VARIANT says which alternatives of the key template were taken"),
    (r"tollkeeper:h\{[0-9a-f]{32}\}\d+:\w+", "tollkeeper:h{DIGEST}VARIANT:RULE", "the same for a value of more than 64 bytes, by the first half of its SHA-256"),
    (r"tollkeeper:rh?\{.*\}\d+:\w+", "tollkeeper:r{VALUE}VARIANT:RULE", "what was refunded to a bucket while estimates are unsettled"),
    (r"tollkeeper:o\{[0-9a-f]{32}\}(key|peer)", "tollkeeper:o{DIGEST}key, tollkeeper:o{DIGEST}peer", "how many reservations a client and an address have open"),
    (r"tollkeeper:reservation:[0-9a-f]{32}", "tollkeeper:reservation:ID", "an estimate until it is settled"),
    (r"tollkeeper:exceptions", "tollkeeper:exceptions", "exceptions for single keys: block, allow, grant"),
    (r"tollkeeper:instances", "tollkeeper:instances", "heartbeats of the instances that share the limits"),
    (r"tollkeeper:shared:\w+", "tollkeeper:shared:NAME", "secrets that all instances have agreed on, for the names of slots"),
]
STATES = """
identify: { user_id: header.x-user-id }
rules:
  - { name: bucket, key: "{user_id}", limit: 10/s }
  - { name: fraction, key: "{user_id}", limit: 7/s }
  - { name: window, key: "{user_id}", limit: 10/h, algorithm: fixed_window }
  - { name: counter, key: "{user_id}", limit: 10/h, algorithm: sliding_window_counter }
  - { name: log, key: "{user_id}", limit: 10/h, algorithm: sliding_window_log }
  - { name: slots, key: "{user_id}", limit: 10, algorithm: concurrency }
"""


def redis_keys():
    with tempfile.TemporaryDirectory() as folder:
        socket = f"{folder}/redis.sock"
        port = free_port()
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--unixsocket", socket, "--save", "", "--dir", folder]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            while not Path(socket).exists():
                time.sleep(0.02)
            with Service(STATES, "--store", f"redis://127.0.0.1:{port}") as service:
                admin = {"Authorization": f"Bearer {service.token}"}
                for user in ["42", "x" * 65]:
                    service.ask("/v1/check", "POST", json.dumps({"attributes": {"user_id": user}}))
                    service.ask("/v1/reserve", "POST", json.dumps({"attributes": {"user_id": user}}))
                service.ask("/v1/exceptions", "PUT", json.dumps({"rule": "bucket", "key": "7", "kind": "block"}), admin)
                time.sleep(1.2)  # A heartbeat.
                script = "local t = {} for _, k in ipairs(redis.call('KEYS', '*')) do table.insert(t, k .. ' ' .. redis.call('TYPE', k).ok .. ' ' .. redis.call('PTTL', k)) end return t"
                found = subprocess.run(["redis-cli", "-s", socket, "EVAL", script, "0"], capture_output=True, text=True, check=True)
        finally:
            server.terminate()
            server.wait()
    rows, left = [], [line.rsplit(" ", 2) for line in found.stdout.splitlines()]
    for pattern, shown, meaning in KEYS:
        here = [line for line in left if re.fullmatch(pattern, line[0])]
        left = [line for line in left if line not in here]
        if not here:
            sys.exit(f"tests/docs/reference.py: there is no key like {shown} any more")
        expires = {True: "yes", False: "no"}[all(int(line[2]) > 0 for line in here)]
        rows.append([f"`{shown}`", ", ".join(sorted({line[1] for line in here})), expires, meaning])
    if left:
        sys.exit(f"tests/docs/reference.py: keys in Redis that the reference does not know: {left}")
    return table(["key", "type", "expires", "what it holds"], rows)


def free_port():
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


PARTS = {
    "alert": alert,
    "commands": commands,
    "configuration": configuration,
    "figures": figures,
    "file": file,
    "headers": headers,
    "metrics": metrics,
    "openapi": openapi,
    "problems": problems,
    "redis_keys": redis_keys,
    "resp": resp_commands,
}


def main():
    writes = sys.argv[1:] == ["--write"]
    every_alert_has_a_runbook()
    stale, count = [], 0
    for page in pages():
        if "<!-- generated: " not in page.text or page.name.startswith("tests/"):
            continue

        def part(match):
            name, *arguments = shlex.split(match[2])
            return f"{match[1]}\n{PARTS[name](*arguments)}\n\n{match[3]}"

        text, found = PART.subn(part, page.text)
        if found != page.text.count("\n<!-- generated: ") + page.text.startswith("<!-- generated: "):
            sys.exit(f"{page.name}: a generated part does not end with <!-- /generated -->")
        count += found
        if text != page.text:
            stale.append(page.name)
            if writes:
                page.path.write_text(text)
    if stale and not writes:
        sys.exit(f"these pages are not what the code says; `./run reference` writes them: {', '.join(stale)}")
    print(f"reference: {count} parts" + (f", written: {', '.join(stale)}" if stale else ""))


if __name__ == "__main__":
    main()
