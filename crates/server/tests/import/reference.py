#!/usr/bin/env python3
"""Cases for a comparison with envoyproxy/ratelimit: reference.py SEED > cases.jsonl

Each line is a configuration and the calls to make under it. The service of envoyproxy/ratelimit has answered them once, and
its answers are kept in reference.jsonl. To record them again, build that service from its sources, then

    RATELIMIT_SERVICE=path/to/its/binary RATELIMIT_CASES=cases.jsonl RATELIMIT_ANSWERS=reference.jsonl \\
        cargo test -p tollkeeper-server --all-features --test service import::reference -- --ignored

Limits are per day and longer, so that no window ends in between. What the import reports as different is left out: `replaces`,
and calls that are denied together with descriptors of other limits.
"""

import json
import random
import sys

KEYS = ["a", "b", "c"]
VALUES = ["", "x", "xy", "/x/1", "x*", "*y", "x*z", "*x*", "/x/*/z", "*", "x*y*z", "10.0.0.0/8", "/u/{id}", "!x", "x**z"]
SENT = ["", "x", "xy", "xyz", "/x/1", "/x/1/z", "/x//z", "xaz", "qy", "10.0.0.0/8", "10.1.2.3", "/u/{id}", "/u/7", "!x", "q", "xz"]
UNITS = ["day", "week", "month", "year"]


def limit(chance):
    if chance.random() < 0.1:
        return {"unlimited": True}
    count = chance.choice([0, 1, 1, 2, 2, 3, 4294967295])
    return {"unit": chance.choice(UNITS), "requests_per_unit": count}


def nodes(chance, depth):
    made = {}
    for _ in range(chance.randint(2, 6)):
        node = {"key": chance.choice(KEYS), "value": chance.choice(VALUES)}
        if chance.random() < 0.75:
            node["rate_limit"] = limit(chance)
        kind = chance.random()
        if kind < 0.15:
            node["shadow_mode"] = True
        elif kind < 0.3:
            node["quota_mode"] = True
        if "*" in node["value"] and chance.random() < 0.25:
            node["share_threshold"] = True
        if depth > 1 and chance.random() < 0.5:
            node["descriptors"] = nodes(chance, depth - 1)
        made.setdefault((node["key"], node["value"]), node)
    return list(made.values())


def descriptor(chance, tree):
    """Follows the tree now and then, so that limits are found at every depth."""
    entries, level = [], tree
    for _ in range(chance.choice([1, 1, 1, 2, 2, 3])):
        if level and chance.random() < 0.85:
            node = chance.choice(level)
            value = node["value"]
            if not value:
                value = chance.choice(SENT)
            elif "*" in value:
                value = value.replace("*", chance.choice(["", "1", "x", "/"]))
            entries.append([node["key"], value])
            level = node.get("descriptors", [])
        else:
            entries.append([chance.choice(KEYS), chance.choice(SENT)])
            level = []
    return entries


def random_case(chance, number):
    tree = nodes(chance, 3)
    known = [descriptor(chance, tree) for _ in range(14)]
    calls = [{"descriptors": [chance.choice(known)]} for _ in range(45)]
    for _ in range(6):
        # Limits sent by the caller hold with or without a rule.
        overridden = [["c", f"override {chance.randint(1, 2)}"]]
        calls.append({"descriptors": [overridden], "limit": [chance.choice([2]), 4]})
    return {"config": {"domain": f"random-{number}", "descriptors": tree}, "calls": calls}


def quotas():
    """Of several alternatives one must have room."""
    quota = lambda name, count: {"key": "service", "value": name, "quota_mode": True, "rate_limit": {"unit": "day", "requests_per_unit": count}}
    tree = [quota("one", 1), quota("two", 3), {"key": "user", "rate_limit": {"unit": "day", "requests_per_unit": 100}}]
    both = [[["service", "one"]], [["service", "two"]]]
    calls = [{"descriptors": both} for _ in range(6)]
    calls += [{"descriptors": both[:1]}, {"descriptors": both[1:]}, {"descriptors": [[["user", "u"]]]}]
    return {"config": {"domain": "quotas", "descriptors": tree}, "calls": calls}


def main():
    chance = random.Random(int(sys.argv[1]))
    for case in [quotas()] + [random_case(chance, number) for number in range(int(sys.argv[2]) if len(sys.argv) > 2 else 30)]:
        print(json.dumps(case, separators=(",", ":")))


main()
