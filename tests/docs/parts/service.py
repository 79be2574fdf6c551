"""A running service to ask."""

import re
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from parts.binary import BINARY, CLEAN


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
