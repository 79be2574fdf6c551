"""Keys in Redis, from a server on which every kind of state was made."""

import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from parts.binary import table
from parts.service import Service

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
            sys.exit(f"tests/docs/parts/redis_keys.py: there is no key like {shown} any more")
        expires = {True: "yes", False: "no"}[all(int(line[2]) > 0 for line in here)]
        rows.append([f"`{shown}`", ", ".join(sorted({line[1] for line in here})), expires, meaning])
    if left:
        sys.exit(f"tests/docs/parts/redis_keys.py: keys in Redis that the reference does not know: {left}")
    return table(["key", "type", "expires", "what it holds"], rows)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
