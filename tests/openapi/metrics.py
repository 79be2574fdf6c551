#!/usr/bin/env python3
"""Reads /metrics with Prometheus's own parser and checks that what the contract names is there."""

import sys
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

EXPECTED = {
    "tollkeeper_decisions": "counter",
    "tollkeeper_check_duration_seconds": "histogram",
    "tollkeeper_store_errors": "counter",
    "tollkeeper_remaining_ratio": "histogram",
    "tollkeeper_keys": "gauge",
    "tollkeeper_rules_loaded": "gauge",
}

text = urllib.request.urlopen(sys.argv[1], timeout=10).read().decode()
found = {family.name: family.type for family in text_string_to_metric_families(text)}
wrong = {name: kind for name, kind in EXPECTED.items() if found.get(name) != kind}
if wrong:
    sys.exit(f"missing or of another kind: {wrong}; there is {found}")
print(f"metrics: {len(found)} families, as described")
