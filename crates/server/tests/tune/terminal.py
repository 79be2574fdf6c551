"""Runs a command in a terminal of its own and prints what it drew: python3 terminal.py ROWS COLUMNS COMMAND..."""
import fcntl
import os
import pty
import struct
import sys
import termios

ROWS, COLUMNS = int(sys.argv[1]), int(sys.argv[2])

pid, terminal = pty.fork()
if pid == 0:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TOLLKEEPER_", "NO_COLOR"))}
    # The size is set before it starts, so it is never seen without one.
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    os.execve(sys.argv[3], sys.argv[3:], {**clean, "TERM": "xterm-256color"})

while True:
    try:
        chunk = os.read(terminal, 65536)
    except OSError:
        break
    if not chunk:
        break
    sys.stdout.buffer.write(chunk)
_, status = os.waitpid(pid, 0)
sys.exit(os.waitstatus_to_exitcode(status))
