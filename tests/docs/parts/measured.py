"""Metrics, from the catalog of the service, and its alerts."""

import json
import re
import subprocess
import sys
import tempfile
from functools import cache

from markdown import REPOSITORY, slug
from queries import QUERIES

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
