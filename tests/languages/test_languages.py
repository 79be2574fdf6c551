"""The middleware of examples/go, java, php and ruby, each in a real application, against the real service.

Between the two stands a relay that counts connections and can be made to hang. A language that is not on the machine fails:
./run setup installs them.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import socket
import subprocess
import tempfile
import threading
import time
import unittest
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
BINARY = ROOT / "target" / "debug" / "tollkeeper"
BUILD = ROOT / "target" / "languages"
PATIENCE = 60.0
RULES = """
rules:
  - { name: per-address, key: "{ip}", limit: 20/h, when: { path: /limited } }
  - { name: paths, key: "{method} {path}", limit: 1/h, when: { path: [/a b, /once] } }
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
        time.sleep(0.05)
    raise TimeoutError(f"{process.args!r} does not listen on port {port}")


@contextlib.contextmanager
def running(command: list[str], port: int, cwd: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, cwd=cwd, env={**os.environ, **environment}, stdout=log, stderr=log)
        try:
            wait_for_port(port, process)
            yield process
        except BaseException:
            log.seek(0)
            print(log.read().decode(errors="replace"))
            raise
        finally:
            process.kill()
            process.wait()


@contextlib.contextmanager
def service() -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "rules.yaml"
        config.write_text(RULES)
        command = [str(BINARY), "serve", "--http", f"127.0.0.1:{port}", "--config", str(config)]
        with running(command, port, Path(folder)) as process:
            yield port, process


class Relay:
    """Passes bytes on to the service, and counts who connects."""

    def __init__(self, to: int) -> None:
        self.to = to
        self.connections = 0
        self.hangs = False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self.to))
        except OSError:
            client.close()
            return
        with client, server:
            back = threading.Thread(target=self._copy, args=(server, client), daemon=True)
            back.start()
            self._copy(client, server)
            back.join()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not self.hangs:
                    target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.listener.close()


class Language:
    """What every example has to do."""

    #: How many connections 30 requests one after the other may need.
    most_connections = 2
    #: The application takes as many requests at a time.
    at_a_time = 8

    def command(self, service: int, port: int) -> tuple[list[str], Path, dict[str, str]]:
        raise NotImplementedError

    @contextlib.contextmanager
    def application(self, service: int, timeout_ms: int = 20_000) -> Iterator[int]:
        port = free_port()
        command, folder, environment = self.command(service, port)
        with running(command, port, folder, TIMEOUT_MS=str(timeout_ms), **environment):
            yield port

    def test_exact_counts_headers_and_reused_connections(self) -> None:
        with service() as (checks, _):
            relay = Relay(checks)
            with self.application(relay.port) as port:
                answers = [get(port, "/limited") for _ in range(30)]
            relay.close()
        self.assertEqual([answer.status for answer in answers], [200] * 20 + [429] * 10)
        first, last = answers[0].headers, answers[-1].headers
        self.assertEqual(first["ratelimit-policy"], '"per-address";q=20;w=3600')
        self.assertTrue(first["ratelimit"].startswith('"per-address";r=19'), first["ratelimit"])
        self.assertIsNone(first["retry-after"])
        self.assertTrue(1 <= int(last["retry-after"]) <= 180, last["retry-after"])
        self.assertTrue(last["ratelimit"].startswith('"per-address";r=0'), last["ratelimit"])
        self.assertTrue(last["content-type"].startswith("application/problem+json"), last["content-type"])
        self.assertEqual(answers[-1].body, b'{"title":"Quota exceeded","status":429}')
        self.assertEqual(answers[0].body.strip(), b"hello")
        self.assertLessEqual(relay.connections, self.most_connections)

    def test_many_at_a_time_are_counted_exactly(self) -> None:
        with service() as (checks, _), self.application(checks) as port:
            with ThreadPoolExecutor(self.at_a_time) as pool:
                statuses = list(pool.map(lambda _: get(port, "/limited").status, range(60)))
        self.assertEqual((statuses.count(200), statuses.count(429)), (20, 40))

    def test_the_path_is_sent_decoded_and_the_method_as_it_is(self) -> None:
        with service() as (checks, _), self.application(checks) as port:
            self.assertEqual([get(port, "/a%20b?x=1").status for _ in range(2)], [200, 429])
            self.assertEqual([get(port, "/once").status for _ in range(2)], [200, 429])
            self.assertEqual(get(port, "/once", "POST").status, 200)

    def test_without_the_service_requests_pass_and_when_it_is_back_they_are_limited_again(self) -> None:
        with service() as (checks, process):
            relay = Relay(checks)
            with self.application(relay.port) as port:
                self.assertEqual([get(port, "/once").status for _ in range(2)], [200, 429])
                process.kill()
                process.wait()
                answers = [get(port, "/once") for _ in range(5)]
                self.assertEqual([answer.status for answer in answers], [200] * 5)
                self.assertIsNone(answers[0].headers["ratelimit"])
                with service() as (again, _):
                    relay.to = again
                    self.assertEqual([get(port, "/once").status for _ in range(2)], [200, 429])
            relay.close()

    def test_a_service_that_hangs_keeps_nobody_waiting(self) -> None:
        with service() as (checks, _):
            relay = Relay(checks)
            # Long enough for a busy machine to answer.
            with self.application(relay.port, timeout_ms=2_000) as port:
                self.assertEqual([get(port, "/once").status for _ in range(2)], [200, 429])
                relay.hangs = True
                started = time.monotonic()
                self.assertEqual([get(port, "/once").status for _ in range(3)], [200] * 3)
                self.assertLess(time.monotonic() - started, PATIENCE)
                relay.hangs = False
                self.assertEqual(get(port, "/once").status, 429)
            relay.close()


class Answer:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()


def get(port: int, path: str, method: str = "GET") -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request(method, path)
        return Answer(connection.getresponse())
    finally:
        connection.close()


class Go(Language, unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.binary = BUILD / "go-example"
        for command in (["go", "vet", "."], ["go", "build", "-o", str(cls.binary), "."]):
            subprocess.run(command, cwd=EXAMPLES / "go", check=True)

    def command(self, service: int, port: int) -> tuple[list[str], Path, dict[str, str]]:
        where = {"TOLLKEEPER": f"http://127.0.0.1:{service}", "PORT": str(port)}
        return [str(self.binary)], EXAMPLES / "go", where


class Java(Language, unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        command = ["mvn", "-q", "-B", "compile", f"-DbuildDirectory={BUILD / 'java'}"]
        subprocess.run(command, cwd=EXAMPLES / "java", check=True)

    def command(self, service: int, port: int) -> tuple[list[str], Path, dict[str, str]]:
        where = {"TOLLKEEPER": f"http://127.0.0.1:{service}", "PORT": str(port)}
        folder = BUILD / "java"
        return ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", f"{folder}/classes:{folder}/lib/*", "App"], ROOT, where


class Php(Language, unittest.TestCase):
    # The built-in server is one worker, as one process of PHP-FPM is.
    at_a_time = 4

    def command(self, service: int, port: int) -> tuple[list[str], Path, dict[str, str]]:
        where = {"TOLLKEEPER": f"127.0.0.1:{service}"}
        return ["php", "-d", "display_errors=stderr", "-S", f"127.0.0.1:{port}", "index.php"], EXAMPLES / "php", where


class Ruby(Language, unittest.TestCase):
    # One a thread of the server.
    most_connections = 5

    def command(self, service: int, port: int) -> tuple[list[str], Path, dict[str, str]]:
        where = {"TOLLKEEPER": f"http://127.0.0.1:{service}"}
        return ["puma", "-q", "-t", "1:5", "-b", f"tcp://127.0.0.1:{port}"], EXAMPLES / "ruby", where


class Page(unittest.TestCase):
    """What the guide shows is what was tested."""

    def test_the_pages_quote_the_examples(self) -> None:
        for language, name, path in [
            ("go", "howto/go.md", "go/ratelimit.go"),
            ("java", "howto/java.md", "java/src/main/java/RateLimitFilter.java"),
            ("php", "guide/other-languages.md", "php/ratelimit.php"),
            ("ruby", "guide/other-languages.md", "ruby/ratelimit.rb"),
        ]:
            with self.subTest(path):
                page = (ROOT / "docs" / name).read_text()
                quoted = re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL)
                source = (EXAMPLES / path).read_text()
                self.assertIn((language, source), quoted, f"{name} does not quote examples/{path} exactly; ./run reference writes it")
