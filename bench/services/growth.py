#!/usr/bin/env python3
"""How cost grows: `./run bench --growth [--quick] [--binary PATH] [--out FOLDER]`.

New keys from a thousand to ten million (in process: `bench/src/bin/growth.rs`, with the longest single call), 1 to 10,000 rules, 1 to 5 rules a
request, 1 to 10,000 connections, and what an idle service takes: time to start, memory and CPU. Results go to GROWTH.md and growth.svg.
"""

import argparse
import atexit
import html
import json
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time

import report
from contestants import CHECK, Contestants, Running
from peers import Peers
from processes import stop_all
from services import Load


def keys(most):
    """The program prints a line of JSON a step."""
    root = pathlib.Path(__file__).resolve().parents[2]
    command = ["cargo", "run", "--release", "--quiet", "--manifest-path", root / "bench/Cargo.toml", "--bin", "growth", str(most)]
    output = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=1800)
    if output.returncode != 0:
        print(f"keys: {output.stderr.strip()[-300:]}", file=sys.stderr)
        return []
    return [json.loads(line) for line in output.stdout.splitlines()]


def rules_file(count):
    """Rules of which one applies to the request."""
    lines = ['rules:\n  - {name: per-user, key: "{user_id}", limit: 1000000/s}\n']
    lines += [f'  - {{name: other-{nth}, when: {{tenant: t{nth}}}, key: "{{user_id}}", limit: 10/s}}\n' for nth in range(count - 1)]
    return "".join(lines)


def applying(count):
    return "rules:\n" + "".join(f'  - {{name: rule-{nth}, key: "{{user_id}}", limit: 1000000/s}}\n' for nth in range(count))


def idle(make, rules, seconds):
    begun = time.monotonic()
    process, port, _, _ = make.serve(rules)
    ready = time.monotonic() - begun
    time.sleep(1)
    before, since = process.cpu_ns(), time.monotonic()
    time.sleep(seconds)
    share = (process.cpu_ns() - before) / 1e9 / (time.monotonic() - since)
    return process, port, {"start_ms": ready * 1000, "idle_mb": process.resident_mb(), "idle_cpu": share}


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=root / "target/dist/tollkeeper")
    parser.add_argument("--quick", action="store_true", help="shorter runs: about 3 minutes")
    parser.add_argument("--out", default=root / "bench/services", metavar="FOLDER")
    parser.add_argument("--peers", default=root / "target/peers", metavar="FOLDER")
    parser.add_argument("--offline", action="store_true", help="build nothing")
    parser.add_argument("--no-keys", action="store_true", help="leave out the growth of keys, which builds a program")
    arguments = parser.parse_args()
    atexit.register(stop_all)
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, lambda *_: sys.exit(1))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    seconds = 1.0 if arguments.quick else 3.0
    begun = time.monotonic()

    def say(text):
        print(f"[{time.monotonic() - begun:4.0f} s] {text}", file=sys.stderr, flush=True)

    peers = Peers(arguments.peers, arguments.offline)
    peers._own()
    peers._debian("redis-server")
    make = Contestants(arguments.binary, peers.paths)
    plots, lines = [], ["# How cost grows", "", f"Measured on {time.strftime('%-d %B %Y')} by `./run bench --growth` on {report.machine()}. Service and load share the machine.", "",
                        "![plots](growth.svg)", ""]
    with tempfile.TemporaryDirectory(prefix="tollkeeper-bench-") as folder:
        load = Load(peers.paths["load"], folder)

        def cost(port, process, *options):
            load.run(Running("http", port, CHECK, process), 0.3, options)
            return load.run(Running("http", port, CHECK, process), seconds, options)

        lines += ["## Rules", "", "One of them applies to each request.", "",
                  "| rules | start ms | idle MB | idle CPU ms/s | CPU µs a request | p99 ms |", "|---:|---:|---:|---:|---:|---:|"]
        points = []
        for count in (1, 10, 100, 1_000, 10_000):
            say(f"{count} rules")
            process, port, rest = idle(make, rules_file(count), 4 if arguments.quick else 10)
            measured = cost(port, process)
            process.stop()
            points.append((count, measured["cpu_us"]["service"]))
            lines.append(f"| {count:,} | {rest['start_ms']:.0f} | {rest['idle_mb']:.1f} | {rest['idle_cpu'] * 1000:.2f} | "
                         f"{measured['cpu_us']['service']:.1f} | {measured['p99_us'] / 1000:.2f} |")
        plots.append(("rules", "CPU µs a request", points))

        lines += ["", "## Rules that apply to one request", "", "| rules | CPU µs a request | p99 ms |", "|---:|---:|---:|"]
        points = []
        for count in range(1, 6):
            say(f"{count} rules a request")
            process, port, _, _ = make.serve(applying(count))
            measured = cost(port, process)
            process.stop()
            points.append((count, measured["cpu_us"]["service"]))
            lines.append(f"| {count} | {measured['cpu_us']['service']:.1f} | {measured['p99_us'] / 1000:.2f} |")
        plots.append(("rules that apply", "CPU µs a request", points))

        lines += ["", "## Connections", "", "| connections | requests/s | CPU µs a request | p50 ms | p99 ms | resident MB | failed |",
                  "|---:|---:|---:|---:|---:|---:|---:|"]
        points = []
        # The service keeps some files for itself, and shares the others out to its listeners.
        most = min(10_000, hard - 200)
        for count in sorted({1, 10, 100, 1_000, most}):
            say(f"{count} connections")
            # By default one address has a quarter of all connections, and this load has one address.
            process, port, _, _ = make.serve(applying(1) + f"listen: {{connections: {most}, connections_per_address: {most}}}\n", only_http=True)
            measured = load.run(Running("http", port, CHECK, process), max(seconds, count / 2_000), (f"connections={count}",))
            lines.append(f"| {count:,} | {measured['per_second']:,.0f} | {measured['cpu_us']['service']:.1f} | {measured['p50_us'] / 1000:.2f} | "
                         f"{measured['p99_us'] / 1000:.2f} | {process.resident_mb():.1f} | {sum(measured['failed'].values())} |")
            process.stop()
            points.append((count, measured["cpu_us"]["service"]))
        plots.append(("connections", "CPU µs a request", points))

    if not arguments.no_keys:
        say("new keys (in process)")
        steps = keys(1_000_000 if arguments.quick else 10_000_000)
        lines += ["", "## New keys", "", "In process, in a table for twelve million. *Longest* is the longest single call. A busy machine adds what the system gave to others meanwhile, "
                  "so beside it is how much of one call was *on the processor*, how long the calls of a block of 64 *waited* for a lock of ours or of the system, and the *control*: the longest "
                  "step of a loop that only reads the clock, for as long.", "",
                  "| keys | ns a new key | p99.99 µs | longest µs | on the processor µs | waited µs | control µs | resident bytes a key |", "|---:|---:|---:|---:|---:|---:|---:|---:|"]
        lines += [f"| {step['keys']:,} | {step['ns']:.0f} | {step['p9999_us']:.1f} | {step['longest_us']:.0f} | {step['running_us']:.0f} | {step['blocked_us']:.0f} | "
                  f"{step['machine_us']:.0f} | {step['bytes']:.1f} |" for step in steps]
        plots.append(("keys", "longest call on the processor, µs", [(step["keys"], step["running_us"]) for step in steps]))
        plots.append(("keys", "ns a new key", [(step["keys"], step["ns"]) for step in steps]))

    out = pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "GROWTH.md").write_text("\n".join(lines) + "\n")
    (out / "growth.svg").write_text(picture(plots))
    say(f"wrote {out}/GROWTH.md and growth.svg")
    print("\n".join(lines))


def picture(plots):
    """Small line charts, equal steps on the x axis."""
    wide, high, pad, across = 320, 200, 46, 3
    parts = []
    for nth, (what, unit, points) in enumerate(plot for plot in plots if plot[2]):
        x0, y0 = (nth % across) * wide + pad, (nth // across) * high + 30
        w, h = wide - pad - 20, high - 70
        most = max(value for _, value in points) * 1.15 or 1
        place = [(x0 + w * at / max(len(points) - 1, 1), y0 + h - h * value / most) for at, (_, value) in enumerate(points)]
        parts.append(f'<text x="{x0}" y="{y0 - 12}" class="head">{html.escape(unit)} by {html.escape(what)}</text>')
        parts.append(f'<path d="M{x0} {y0}V{y0 + h}H{x0 + w}" class="axis"/>')
        parts.append('<polyline points="' + " ".join(f"{x:.1f},{y:.1f}" for x, y in place) + '" class="line"/>')
        for (x, y), (label, value) in zip(place, points):
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" class="dot"/>')
            parts.append(f'<text x="{x:.1f}" y="{y - 7:.1f}" text-anchor="middle">{value:,.{0 if value >= 100 else 1}f}</text>')
            parts.append(f'<text x="{x:.1f}" y="{y0 + h + 15}" text-anchor="middle">{short(label)}</text>')
    rows = -(-len(plots) // across)
    style = ("text{font:11px sans-serif;fill:#444}.head{font-weight:bold;fill:#111}.axis{stroke:#999;fill:none}"
             ".line{stroke:#1a6fb5;fill:none;stroke-width:2}.dot{fill:#1a6fb5}")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide * across} {high * rows}" width="{wide * across}" height="{high * rows}">'
            f'<style>{style}</style><rect width="100%" height="100%" fill="#fff"/>' + "".join(parts) + "</svg>\n")


def short(number):
    for size, name in ((1_000_000, "M"), (1_000, "k")):
        if number % size == 0:
            return f"{number // size}{name}"
    return f"{number:,}"


if __name__ == "__main__":
    main()
