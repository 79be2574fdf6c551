"""Runs `tollkeeper top` in a terminal of its own: python3 terminal.py BINARY URL

Waits for what must be seen, presses keys, changes the size, and ends it: by `q`, by Ctrl-C, and by a signal. After each the
terminal must be as it was before. Without a terminal it does not go on.
"""
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time

BINARY, URL = sys.argv[1:]
PATIENCE = 30


class Terminal:
    def __init__(self, rows, columns, **environment):
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            clean = {name: value for name, value in os.environ.items() if not name.startswith(("TOLLKEEPER_", "NO_COLOR"))}
            # The size is set before it starts, so it is never seen without one.
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            args = [BINARY, "top", "--url", URL, "--interval", "200ms"]
            os.execve(BINARY, args, {**clean, "TERM": "xterm-256color", **environment})
        self.seen = ""

    def read(self):
        ready, _, _ = select.select([self.file], [], [], 0.1)
        if not ready:
            return True
        try:
            chunk = os.read(self.file, 65536)
        except OSError:
            return False
        self.seen += chunk.decode(errors="replace")
        return bool(chunk)

    def wait_for(self, text):
        """Waits until this is drawn, and forgets what came before it."""
        end = time.monotonic() + PATIENCE
        while text not in self.seen:
            assert time.monotonic() < end and self.read(), f"{text!r} does not come; seen: {self.seen[-2000:]!r}"
        self.seen = self.seen[self.seen.index(text):]

    def press(self, keys):
        os.write(self.file, keys)

    def resize(self, rows, columns):
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def ends(self):
        """It ends well, and leaves the other screen with the cursor to be seen."""
        end = time.monotonic() + PATIENCE
        while self.read():
            assert time.monotonic() < end, "it does not end"
        _, status = os.waitpid(self.pid, 0)
        assert status == 0, status
        for sequence in ("\x1b[?1049l", "\x1b[?25h"):
            assert sequence in self.seen, f"{sequence!r} is missing: {self.seen[-300:]!r}"


terminal = Terminal(34, 120)
terminal.wait_for("\x1b[?1049h")
terminal.wait_for("everybody")
terminal.wait_for("MOST DENIALS")
assert "\x1b[38;5;" in terminal.seen or "\x1b[3" in terminal.seen, "there are colours"
terminal.press(b"\x1b[B")
terminal.wait_for("without waiting: looks like abuse")
terminal.wait_for("203.0.113.66")
terminal.press(b"\t")
terminal.wait_for("DENIED AT")
terminal.wait_for("tab shows hot keys")
terminal.resize(10, 40)
terminal.wait_for("\u2026")
assert "[2J\u202e" not in terminal.seen, "what a client chose moves no cursor"
terminal.press(b"q")
terminal.ends()

terminal = Terminal(24, 80, NO_COLOR="1")
terminal.wait_for("everybody")
terminal.wait_for("q quits")
assert "\x1b[38;5;" not in terminal.seen
terminal.press(b"\x03")
terminal.ends()

terminal = Terminal(24, 80)
terminal.wait_for("everybody")
os.kill(terminal.pid, signal.SIGTERM)
terminal.ends()
# Its terminal was closed under `nohup`, and it went on for ever with a whole core.
signal.signal(signal.SIGHUP, signal.SIG_IGN)
terminal = Terminal(24, 80)
terminal.wait_for("everybody")
os.close(terminal.file)
end = time.monotonic() + PATIENCE
while os.waitpid(terminal.pid, os.WNOHANG) == (0, 0):
    if time.monotonic() > end:
        os.kill(terminal.pid, signal.SIGKILL)
        raise AssertionError("it outlives its terminal")
    time.sleep(0.1)
print("top: fine")
