"""The configuration file, from its schema."""

import json
import sys
import tempfile
from functools import cache
from pathlib import Path

from examples import AROUND, BESIDE, EXAMPLES
from markdown import slug
from parts.binary import plain, table, tollkeeper


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
