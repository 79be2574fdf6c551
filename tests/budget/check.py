"""Counts the instructions of hot paths and compares them with tests/budget/instructions.json.

    check.py EXAMPLE                    fails if a path takes over 5 % more than its budget
    check.py EXAMPLE --service PROGRAM  counts paths through the service too
    check.py ... --update               writes what was counted as the budget

EXAMPLE is target/debug/examples/budget, which runs paths of the library; PROGRAM is target/debug/tollkeeper, which is asked over each protocol on one
connection. Both are the builds of the tests: what matters is that counts do not grow. Counts are the same on a busy machine. Of the service only the
thread that serves the connection counts, so that what runs beside it does not; how often that thread looks for work differs a little from run to run,
so these paths may take 10 % more. They take longer too, so the tests leave them out.
"""

import argparse
import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

BUDGET = pathlib.Path(__file__).with_name("instructions.json")
TOLERANCE = {"library": 0.05, "service": 0.10}
REQUESTS = 100


def library(example):
    """Each path in a run of its own, in which only what `counted` does counts."""
    example = pathlib.Path(example).resolve()
    paths = subprocess.run([example], capture_output=True, text=True, check=True).stdout.splitlines()
    return dict(path_of_library(example, *path.split(" ", 1)) for path in paths)


def path_of_library(example, times, name):
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=budget::counted*", example, name]
    run = subprocess.run(command, capture_output=True, text=True)
    collected = re.search(r"Collected : (\d+)", run.stderr)
    if run.returncode != 0 or not collected or int(collected[1]) == 0:
        sys.exit(f"{name}: nothing was counted\n{run.stderr[-2000:]}")
    return name, round(int(collected[1]) / int(times))


def counted(file):
    """What a callgrind file sums up to."""
    found = re.search(r"^(?:totals|summary): (\d+)", pathlib.Path(file).read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


class Service:
    """The service under callgrind."""

    def __init__(self, program, folder, arguments, patterns):
        self.folder, self.patterns = pathlib.Path(folder), patterns
        command = ["valgrind", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={folder}/counts",
                   pathlib.Path(program).resolve(), *arguments]
        self.output = self.folder / "output"
        environment = {"PATH": "/usr/bin:/bin", "HOME": folder, "TOKIO_WORKER_THREADS": "1"}
        with open(self.output, "wb") as output:
            self.child = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder, env=environment)
        self.ports = self.wait()

    def wait(self):
        """Until all ports are printed and one accepts."""
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and self.child.poll() is None:
            text = self.output.read_text(errors="replace")
            ports = {name: re.search(pattern, text) for name, pattern in self.patterns.items()}
            if all(ports.values()):
                return {name: int(port[1]) for name, port in ports.items()}
            time.sleep(0.2)
        sys.exit(f"the service did not start under valgrind:\n{self.output.read_text(errors='replace')[-2000:]}")

    def count(self, ask):
        """Instructions of what `ask` makes the service do: those of the busiest thread, which is the one that serves the connection."""
        self.dump()
        ask()
        return max(counted(file) for file in self.dump())

    def dump(self):
        """Writes the counts since the last time, a file for each thread, and starts from 0."""
        known = set(self.folder.glob("counts.*"))
        for _ in range(20):
            subprocess.run(["callgrind_control", "-d", str(self.child.pid)], capture_output=True, timeout=120)
            before = set()
            for _ in range(20):
                files = set(self.folder.glob("counts.*")) - known
                # One is written after the other, and how many there are is not known.
                if files and files == before and all("totals:" in file.read_text(errors="replace") for file in files):
                    return files
                before = files
                time.sleep(0.5)
        sys.exit("callgrind wrote no counts")

    def stop(self):
        self.child.terminate()
        self.child.wait(60)


HTTP = {"http": r"http://127\.0\.0\.1:(\d+)"}
# Its upstream has such an address too.
PROXY = {"http": r"listening on http://127\.0\.0\.1:(\d+)"}
PORTS = {**HTTP, "grpc": r"grpc: 127\.0\.0\.1:(\d+)", "resp": r"redis://127\.0\.0\.1:(\d+)"}


def service(program):
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "rules.yaml").write_text('rules:\n  - {name: per-user, key: "{user_id}", limit: 1000000/s}\n')
        arguments = ["serve", "--config", "rules.yaml", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--resp", "127.0.0.1:0"]
        counts = count_paths(Service(program, folder, arguments, PORTS), PATHS)
    upstream = Upstream()
    for name, limit in [("proxy, limited", "1000000/s"), ("proxy, denied", "1/day")]:
        with tempfile.TemporaryDirectory() as folder:
            arguments = ["proxy", "--listen", "127.0.0.1:0", "--upstream", f"http://127.0.0.1:{upstream.port}", "--limit",
                         f"{limit} by header.x-api-key"]
            counts |= count_paths(Service(program, folder, arguments, PROXY), [(name, "http", AUTHORIZE, 1)])
    return counts


class Upstream(threading.Thread):
    """A page behind the proxy, on one connection at a time."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.start()

    def run(self):
        while True:
            connection, _ = self.listener.accept()
            asked = b""
            while received := connection.recv(65536):
                asked += received
                if asked.endswith(b"\r\n\r\n"):
                    asked = b""
                    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 6\r\n\r\nhello\n")


def count_paths(running, paths):
    try:
        counts = {}
        for name, port, request, commands in paths:
            with socket.create_connection(("127.0.0.1", running.ports[port]), timeout=120) as connection:
                ask = Http2(connection).exchange if port == "grpc" else (lambda: exchange(connection, request))
                for _ in range(20):
                    ask()
                total = running.count(lambda: [ask() for _ in range(REQUESTS)])
                counts[name] = round(total / REQUESTS / commands)
        return counts
    finally:
        running.stop()


def exchange(connection, request):
    """Sends a request and reads until the answer ends: its length follows from the first one's."""
    connection.sendall(request)
    answer = b""
    while not is_whole(answer, request):
        received = connection.recv(65536)
        if not received:
            sys.exit("the service closed the connection")
        answer += received


class Http2:
    """As much of HTTP/2 as Envoy's call needs: headers that are never indexed, one stream after the other."""

    def __init__(self, connection):
        self.connection, self.stream, self.input = connection, -1, b""
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self.frame(4, 0, 0, b""))

    @staticmethod
    def frame(kind, flags, stream, payload):
        return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload

    def exchange(self):
        self.stream += 2
        fields = [(":method", "POST"), (":scheme", "http"), (":path", RLS), (":authority", "127.0.0.1"),
                  ("content-type", "application/grpc"), ("te", "trailers")]
        block = b"".join(b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode() for name, value in fields)
        message = b"\0" + len(MESSAGE).to_bytes(4, "big") + MESSAGE
        # Flags: 4 ends the headers, 1 the stream.
        self.connection.sendall(self.frame(1, 4, self.stream, block) + self.frame(0, 1, self.stream, message))
        while True:
            while len(self.input) < 9 or len(self.input) < 9 + int.from_bytes(self.input[:3], "big"):
                received = self.connection.recv(65536)
                if not received:
                    sys.exit("the service closed the connection")
                self.input += received
            length, kind, flags = int.from_bytes(self.input[:3], "big"), self.input[3], self.input[4]
            stream, self.input = int.from_bytes(self.input[5:9], "big"), self.input[9 + length :]
            if kind == 4 and not flags:
                self.connection.sendall(self.frame(4, 1, 0, b""))
            if stream == self.stream and kind in (0, 1) and flags & 1:
                return


def is_whole(answer, request):
    if request.startswith(b"*"):
        return answer.count(b"\r\n") == 6 * request.count(b"CL.THROTTLE")
    head, found, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    return bool(found) and (not length or len(body) == int(length[1]))


BODY = b'{"attributes":{"user_id":"u0000042","plan":"free"}}'
CHECK = b"POST /v1/check HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY)
AUTHORIZE = b"GET /v1/authorize HTTP/1.1\r\nhost: 127.0.0.1\r\nx-api-key: u0000042\r\n\r\n"
THROTTLE = b"*5\r\n$11\r\nCL.THROTTLE\r\n$8\r\nu0000042\r\n$7\r\n1000000\r\n$7\r\n1000000\r\n$1\r\n1\r\n"
RLS = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
# Domain `bench`, one descriptor: user_id=u0000042.
MESSAGE = b"\x0a\x05bench\x12\x15\x0a\x13\x0a\x07user_id\x12\x08u0000042"
PATHS = [
    ("POST /v1/check", "http", CHECK, 1),
    ("GET /v1/authorize", "http", AUTHORIZE, 1),
    ("ShouldRateLimit", "grpc", None, 1),
    ("CL.THROTTLE", "resp", THROTTLE, 1),
    ("CL.THROTTLE, pipelined by 16", "resp", THROTTLE * 16, 16),
]


def main():
    parser = argparse.ArgumentParser(description="Counts the instructions of hot paths.")
    parser.add_argument("example")
    parser.add_argument("--service", metavar="PROGRAM")
    parser.add_argument("--update", action="store_true")
    arguments = parser.parse_args()
    counts = {"library": library(arguments.example)}
    if arguments.service:
        counts["service"] = service(arguments.service)
    budget = json.loads(BUDGET.read_text()) if BUDGET.exists() else {}
    if arguments.update:
        budget.update(counts)
        BUDGET.write_text(json.dumps(budget, indent=2) + "\n")
    over = []
    for kind, paths in counts.items():
        for path, instructions in paths.items():
            allowed = budget.get(kind, {}).get(path, 0)
            print(f"{path:32} {instructions:8} instructions, budget {allowed}")
            if instructions > allowed * (1 + TOLERANCE[kind]):
                over.append(path)
    if over:
        sys.exit(f"over budget: {', '.join(over)}. Find out why; or run `./run budget --update`, and say why in the commit")


if __name__ == "__main__":
    main()
