"""The HTTP API, from the description that the service serves."""

import json

from parts.binary import plain, table
from parts.service import Service


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
