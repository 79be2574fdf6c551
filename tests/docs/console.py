"""Runs every ```console block of the README and of docs/, and compares what comes out with what the page shows.

    python3 tests/docs/console.py [PAGE ...]

A page is one session: its commands run in order in one shell, in an empty folder with `examples/` and `deploy/` of the
repository in it. The session has a network and processes of its own (`unshare`), so that pages can use the ports that they
name, and nothing is left when it ends. It needs the service's binary in target/debug, and for the pages of Python and Node
what `./run python` and `./run node` build.

What a page can say in comments (they are not shown):

    <!-- not run: why -->        the next block is not run; the reason is required
    <!-- figures vary -->        in the output of the next block, digits may differ
    <!-- file: NAME -->          the next block is saved as NAME; so is one that starts with a comment such as `# rules.yaml`
    <!-- prepare: commands -->   run here, for what readers have already: an application, a log, earlier requests

In a block, `...` stands for anything, and a command without output says nothing about it. A command must exit with 0, or
with what its comment says: `# exit status 1`. Times, waits, versions, ports, identifiers and white space may differ.
`tollkeeper serve` in the foreground goes on running until the page starts another one in the foreground.
"""

import concurrent.futures
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from markdown import DOCS, REPOSITORY, Page, pages

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")).resolve()
TOOLS = REPOSITORY / "target" / "tools"
SERVER = re.compile(r"^(?:\w+=\S+ )*(tollkeeper (serve|proxy)|node|uvicorn|python3 -m (uvicorn|flask|http\.server)|go run) ?")
NAMED = re.compile(r"^(?:#|//|--) ([\w.-]+\.(?:yaml|yml|json|py|mjs|js|conf|toml|jsonl|go))\b")
HANGS = 90

# What differs from run to run: replaced by a word on both sides.
VARYING = [
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?", "TIME"),
    (r"\b[0-9a-f]{16,}\b", "ID"),
    (r"tollkeeper \d+\.\d+\.\d+|Tollkeeper \d+\.\d+\.\d+", "tollkeeper VERSION"),
    (r"(_ms\"?[:=] ?)\d+", r"\1N"),
    (r"(;t=)\d+", r"\1N"),
    (r"(?i)(ratelimit-reset: )\d+", r"\1N"),
    (r"[▁▂▃▄▅▆▇█]", ""),
    (r"(?i)(retry-after\"?: ?\"?)\d+", r"\1N"),
    (r"\b429 \d+", "429 N"),
    (r"retry in \d+ seconds", "retry in N seconds"),
    (r"\b(redis|valkey) \d+\.\d+\.\d+", r"\1 VERSION"),
    (r'("instance":")[^"]*', r"\1NAME"),
    (r"SimpleHTTP/\S+ Python/\S+", "SERVER"),
    (r"\b\d+(\.\d+)? ?(µs|ms|s|seconds|minutes)\b", "SPAN"),
    (r"\(integer\) \d+", "(integer) N"),
    (r"http://127\.0\.0\.1:[3-6]\d{4}", "http://127.0.0.1:PORT"),
]


# What a machine says about itself.
OWN = re.compile(r"^.* WARN tollkeeper_server::command::open_files: .*\n", re.M)


class Failure(Exception):
    pass


def commands(block):
    """(line number, command, expected output or None) of a block."""
    lines, found, at = block.text.split("\n"), [], 0
    if not lines[0].startswith("$ "):
        raise Failure(f"line {block.line}: a console block starts with a command: $ ...")
    while at < len(lines):
        start, command = at, [lines[at][2:]]
        here = re.search(r"<<-?\s*'?(\w+)'?", lines[at])
        while here and lines[at].strip() != here[1] or not here and lines[at].endswith("\\"):
            at += 1
            command.append(lines[at])
        at += 1
        output = []
        while at < len(lines) and not lines[at].startswith("$ "):
            output.append(lines[at])
            at += 1
        found.append((block.line + 1 + start, "\n".join(command), "\n".join(output) or None))
    return found


def masked(text, figures_vary):
    for pattern, word in VARYING:
        text = re.sub(pattern, word, text)
    if figures_vary:
        text = re.sub(r"\d([\d.,]*\d)?", "N", text)
    return re.sub(r"\s+", "", text)


def agrees(expected, actual, figures_vary=False):
    """Whether an output is what a page shows."""
    parts = [re.escape(masked(part, figures_vary)) for part in expected.split("...")]
    return re.fullmatch(".*".join(parts), masked(actual, figures_vary), re.S) is not None


class Session:
    """A shell whose commands are run one after the other."""

    def __init__(self, folder):
        self.folder = folder
        self.servers = 0
        self.foreground = None
        environment = {
            # Go compiles its library once.
            "GOCACHE": os.environ.get("GOCACHE", str(Path.home() / ".cache/go-build")),
            "HOME": str(folder),
            "PATH": f"{programs(folder)}:{os.environ['PATH']}:/usr/sbin:{postgres()}:{TOOLS}/bin",
            "REPOSITORY": str(REPOSITORY),
            "PYTHONPATH": str(REPOSITORY / "bindings/python/python"),
            "PYTHONUNBUFFERED": "1",
            "TERM": "dumb",
        }
        self.shell = subprocess.Popen(
            ["bash", "--norc"], cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        os.set_blocking(self.shell.stdout.fileno(), False)
        # As in a terminal, where curl shows no progress beside a body.
        self.send('curl() { command curl --no-progress-meter "$@"; }')

    def run(self, command):
        """The output of a command and its exit status."""
        if "$TOKEN" in command and "TOKEN=" not in command:
            self.send(': "${TOKEN:=$(cat ~/.local/state/tollkeeper/*.token)}"')
        bare = re.sub(r"\s+#.*$", "", command, flags=re.M).rstrip()
        if SERVER.match(bare) and not bare.endswith("&"):
            return self.start(bare), 0
        if bare.endswith("&"):
            before = listening()
            self.servers += 1
            # What it prints would come at any time.
            output, status = self.send(f"{{ {bare[:-1]}; }} > {self.folder}/.server-{self.servers}.log 2>&1 &")
            job = self.send("echo $!")[0].strip()
            wait_for(lambda: listening() > before or not alive(job), "a port that is listened on")
            settle()
            if not alive(job):
                raise Failure(f"it ended: {Path(self.folder, f'.server-{self.servers}.log').read_text()[:3000]}")
            return output, status
        return self.send(command)

    def start(self, command):
        """A server that a reader would run in a terminal of its own: its first lines."""
        if self.foreground:
            self.send(f"kill {self.foreground}; wait {self.foreground} 2>/dev/null")
        self.servers += 1
        log = self.folder / f".server-{self.servers}.log"
        before = listening()
        self.send(f"{command} > {log} 2>&1 &")
        self.foreground = self.send("echo $!")[0].strip()
        wait_for(lambda: listening() > before or not alive(self.foreground), "a port that is listened on")
        settle()
        if not alive(self.foreground):
            raise Failure(f"`{command}` ended: {log.read_text()}")
        return OWN.sub("", log.read_text())

    def send(self, command):
        self.shell.stdin.write(f"{command}\necho; echo __ended__ $?\n".replace("echo; echo __ended__ $?", "__status=$?; echo; echo __ended__ $__status").encode())
        self.shell.stdin.flush()
        output, deadline = b"", time.monotonic() + HANGS
        selector = selectors.DefaultSelector()
        selector.register(self.shell.stdout, selectors.EVENT_READ)
        while not (ended := re.search(rb"\n__ended__ (\d+)\n", output)):
            if not selector.select(deadline - time.monotonic()):
                raise Failure(f"no end after {HANGS} s; so far: {output.decode(errors='replace')}")
            output += self.shell.stdout.read() or b""
        return output[: ended.start()].decode(errors="replace"), int(ended[1])


def programs(folder):
    """A folder with the programs that are not in PATH by their names."""
    place = folder / ".programs"
    place.mkdir()
    (place / "tollkeeper").symlink_to(TARGET / "debug" / "tollkeeper")
    for name in ["envoy/_bin/envoy"]:
        for found in TOOLS.glob(f"lib/python3*/site-packages/{name}"):
            (place / found.name).symlink_to(found)
    # Not a link: an interpreter finds its packages by the folder that it is called in.
    (place / "python3").write_text(f'#!/bin/sh\nexec {TOOLS}/bin/python3 "$@"\n')
    (place / "python3").chmod(0o755)
    return place


def postgres():
    return ":".join(str(path) for path in Path("/usr/lib/postgresql").glob("*/bin"))


def listening():
    """How many sockets of this session are listened on."""
    tables = [Path(f"/proc/self/net/{name}").read_text().splitlines()[1:] for name in ["tcp", "tcp6"]]
    return sum(line.split()[3] == "0A" for table in tables for line in table)


def alive(process):
    """Whether a process runs and is no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(condition, what):
    deadline = time.monotonic() + HANGS
    while not condition():
        if time.monotonic() > deadline:
            raise Failure(f"waited in vain for {what}")
        time.sleep(0.02)


def settle():
    """Until no further socket is listened on for a while: some servers open several."""
    known, since = listening(), time.monotonic()
    while time.monotonic() - since < 0.4:
        time.sleep(0.02)
        if listening() != known:
            known, since = listening(), time.monotonic()


def run_page(page):
    """Runs the blocks of a page. Returns how many commands ran and how many blocks did not."""
    ran = skipped = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for each in ["examples", "deploy"]:
            (folder / each).symlink_to(REPOSITORY / each)
        (folder / "node_modules").symlink_to(TOOLS / "node_bindings_node_test" / "node_modules")
        session = Session(folder)
        for line, kind, content in page.parts:
            if kind == "comment" and content.startswith("prepare:"):
                output, status = session.run(content.removeprefix("prepare:").strip())
                if status != 0:
                    raise Failure(f"line {line}: preparing exits with {status}: {output}")
            elif kind == "block":
                named = re.match(r"file: (\S+)$", content.note) or NAMED.match(content.text)
                if content.language != "console":
                    if named:
                        (folder / named[1]).parent.mkdir(parents=True, exist_ok=True)
                        (folder / named[1]).write_text(content.text + "\n")
                elif content.note.startswith("not run:"):
                    if not content.note.removeprefix("not run:").strip():
                        raise Failure(f"line {line}: say why it is not run")
                    skipped += 1
                else:
                    ran += run_block(session, content)
    return ran, skipped


def run_block(session, block):
    found = commands(block)
    for line, command, expected in found:
        try:
            output, status = session.run(command)
        except Failure as failure:
            raise Failure(f"line {line}: $ {command}\n{failure}") from None
        wanted = re.search(r"#.*exit status (\d+)", command)
        if status != int(wanted[1] if wanted else 0):
            raise Failure(f"line {line}: $ {command}\nexits with {status}:\n{output[:3000]}")
        if expected is not None and not agrees(expected, output, "figures vary" in block.note):
            raise Failure(f"line {line}: $ {command}\n--- the page shows\n{expected}\n--- it printed\n{output.strip()[:3000]}\n---")
    return len(found)


def inside(name):
    """In the session's own network and processes."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    try:
        ran, skipped = run_page(Page.read(REPOSITORY / name))
    except Failure as failure:
        print(f"{name}: {failure}")
        return 1
    print(f"{name}: {ran} commands" + (f", {skipped} blocks not run" if skipped else ""))
    return 0


def attempted(name):
    """Pages have real deadlines, such as the 20 ms of a call to Redis, which a busy machine can miss: a page has a second attempt."""
    status, output = isolated(name)
    if status == 0:
        return status, output
    again, second = isolated(name)
    return again, f"{output}\n--- second attempt\n{second}"


def isolated(name):
    # Postgres does not run as root, nor as one who only seems to be.
    rights = [] if os.geteuid() == 0 else ["--map-current-user", "--keep-caps"]
    command = ["unshare", *rights, "--net", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, __file__, "--inside", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL)
    if done.stdout.startswith("unshare:"):
        return 1, f"{name}: {done.stdout.strip()}: run it as root, or let users make namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0)"
    return done.returncode, done.stdout.strip()


def main():
    if sys.argv[1:2] == ["--inside"]:
        return inside(sys.argv[2])
    chosen = sys.argv[1:]
    names = [page.name for page in pages() if page.name == "README.md" or DOCS in page.path.parents]
    names = [name for name in names if any(b.language == "console" for b in Page.read(REPOSITORY / name).blocks)]
    names = [name for name in names if not chosen or any(each in name for each in chosen)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for status, output in pool.map(attempted, names):
            print(output, flush=True)
            failed += status != 0
    if failed:
        print(f"{failed} of {len(names)} pages differ from what happens", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
