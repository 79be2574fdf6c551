#!/usr/bin/env python3
"""Tollkeeper's service beside its peers, in one run: `./run bench --services [--quick] [--binary PATH] [--only TEXT] [--out FOLDER]`.

For each path all contestants are started, then take turns: in every round each gets the same closed loop of 50 connections. Then each gets
half of the requests a second that it managed, in an open loop. CPU time is that of all threads of a process, from /proc; the load has one
thread of its own, on the same machine. Results go to RESULTS.md and services.svg in the folder, progress to stderr.
"""

import argparse
import atexit
import dataclasses
import json
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import report
from contestants import BATCH, Contestants, get
from peers import Peers
from processes import stop_all


@dataclasses.dataclass
class Row:
    """One path, and who takes it. The first contestant is the floor, if its name says so."""

    name: str
    contestants: list
    options: tuple = ()


def rows(make):
    ours, same = "tollkeeper", "the same floor with SCHED_BATCH"
    return [
        Row("HTTP check, memory", [
            ("floor: axum", make.floor_http),
            (same, lambda: make.floor_http(scheduled=BATCH)),
            ("throttlecrab", lambda: make.throttlecrab("http")),
            ("limitador (library, behind axum)", lambda: make.limitador("http")),
            ("gubernator", lambda: make.gubernator("http")),
            (ours, make.ours_http),
        ]),
        Row("HTTP authorize, memory", [
            ("floor: axum", lambda: make.floor_http(get("/v1/authorize"))),
            (same, lambda: make.floor_http(get("/v1/authorize"), BATCH)),
            (ours, make.ours_authorize),
        ]),
        Row("HTTP check, three rules, memory", [
            ("floor: axum", make.floor_http),
            (same, lambda: make.floor_http(scheduled=BATCH)),
            ("limitador (library, behind axum)", lambda: make.limitador("http", "three")),
            (ours, lambda: make.ours_http(rules=3)),
        ]),
        Row("HTTP check, Redis", [
            ("floor: axum", make.floor_http),
            (same, lambda: make.floor_http(scheduled=BATCH)),
            ("limitador (library, behind axum)", lambda: make.limitador("http", redis=True)),
            ("envoyproxy/ratelimit", lambda: make.ratelimit("http")),
            (ours, lambda: make.ours_http(redis=True)),
        ]),
        Row("gRPC, memory", [
            ("floor: tonic", make.floor_grpc),
            (same, lambda: make.floor_grpc(BATCH)),
            ("throttlecrab (its own protocol)", lambda: make.throttlecrab("grpc")),
            ("limitador (library, behind tonic)", lambda: make.limitador("grpc")),
            ("gubernator (its own protocol)", lambda: make.gubernator("grpc")),
            (ours, make.ours_grpc),
        ]),
        Row("gRPC, three rules, memory", [
            ("floor: tonic", make.floor_grpc),
            (same, lambda: make.floor_grpc(BATCH)),
            ("limitador (library, behind tonic)", lambda: make.limitador("grpc", "three")),
            (ours, lambda: make.ours_grpc(rules=3)),
        ]),
        Row("gRPC, Redis", [
            ("floor: tonic", make.floor_grpc),
            (same, lambda: make.floor_grpc(BATCH)),
            ("limitador (library, behind tonic)", lambda: make.limitador("grpc", redis=True)),
            ("envoyproxy/ratelimit", lambda: make.ratelimit("grpc")),
            (ours, lambda: make.ours_grpc(redis=True)),
        ]),
        Row("RESP, one at a time", [
            ("floor: tokio", make.floor_resp),
            (same, lambda: make.floor_resp(BATCH)),
            ("throttlecrab", lambda: make.throttlecrab("redis")),
            ("redis-cell", make.redis_cell),
            (ours, make.ours_resp),
        ]),
        Row("RESP, pipelined by 16", [
            ("floor: tokio", make.floor_resp),
            (same, lambda: make.floor_resp(BATCH)),
            ("throttlecrab", lambda: make.throttlecrab("redis")),
            ("redis-cell", make.redis_cell),
            (ours, make.ours_resp),
            (f"{ours}, Redis store", lambda: make.ours_resp(redis=True)),
        ], ("pipeline=16",)),
        Row("reverse proxy, limited", [
            ("floor: hyper proxy", make.floor_proxy),
            ("nginx limit_req", lambda: make.nginx(denies=False)),
            ("HAProxy stick-table", lambda: make.haproxy(denies=False)),
            (ours, lambda: make.ours_proxy("1000000/s")),
            (f"{ours}, no rule applies", lambda: make.ours_proxy(None)),
        ]),
        Row("reverse proxy, denied", [
            ("nginx limit_req", lambda: make.nginx(denies=True)),
            ("HAProxy stick-table", lambda: make.haproxy(denies=True)),
            (ours, lambda: make.ours_proxy("1/day")),
        ], ("keys=10",)),
        Row("behind Envoy, end to end", [
            ("floor: Envoy without limits", lambda: make.envoy(None)),
            ("a service that always says OK", lambda: make.envoy(make.floor_grpc())),
            ("limitador (library, behind tonic)", lambda: make.envoy(make.limitador("grpc"))),
            (ours, lambda: make.envoy(make.ours_grpc())),
        ]),
    ]


class Load:
    """Runs the load on a contestant, and reads what the processes used meanwhile."""

    def __init__(self, program, folder):
        self.program, self.folder = program, pathlib.Path(folder)

    def run(self, running, seconds, options, rate=None):
        request = self.folder / "request"
        request.write_bytes(running.request)
        command = [self.program, running.protocol, f"127.0.0.1:{running.port}", request, f"seconds={seconds}", f"path={running.path}", *options]
        if rate:
            command.append(f"rate={rate}")
        before = self.used(running)
        answered = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=seconds + 20)
        after = self.used(running)
        if answered.returncode != 0:
            raise RuntimeError(f"the load failed: {answered.stderr.strip()[-300:]}")
        measured = json.loads(answered.stdout)
        if measured["answered"] == 0:
            raise RuntimeError(f"no answer: {measured['failed']}")
        measured["cpu_us"] = {name: (after[name] - before[name]) / 1000 / measured["answered"] for name in after}
        return measured

    @staticmethod
    def used(running):
        return {"service": running.service.cpu_ns(), **{name: process.cpu_ns() for name, process in running.others.items()}}


@dataclasses.dataclass
class Result:
    """What was measured of one contestant on one path."""

    contestant: str
    rounds: list
    half: dict = None
    problem: str = None

    def median(self, value):
        return statistics.median(value(each) for each in self.rounds)

    def spread(self, value):
        values = [value(each) for each in self.rounds]
        return min(values), max(values)


def measure(row, load, plan, say):
    """All contestants of a row, taking turns."""
    running, results = {}, []
    try:
        for name, start in row.contestants:
            try:
                running[name] = start()
                results.append(Result(name, []))
            except KeyError as missing:
                results.append(Result(name, [], problem=f"{missing.args[0]} could not be had"))
            except (RuntimeError, OSError) as error:
                results.append(Result(name, [], problem=str(error)))
        takes_part = [result for result in results if not result.problem]
        for result in takes_part:
            attempt(result, lambda: load.run(running[result.contestant], 0.5, row.options))  # Warm up.
        for nth in range(plan.rounds):
            say(f"{row.name}: round {nth + 1} of {plan.rounds}")
            for result in takes_part:
                if not result.problem:
                    attempt(result, lambda: result.rounds.append(load.run(running[result.contestant], plan.seconds, row.options)))
        say(f"{row.name}: half of saturation")
        for result in takes_part:
            if not result.problem:
                rate = result.median(lambda each: each["per_second"]) / 2
                attempt(result, lambda: setattr(result, "half", load.run(running[result.contestant], plan.seconds, row.options, round(rate))))
    finally:
        for each in running.values():
            each.stop()
        stop_all()
    return results


def attempt(result, work):
    try:
        work()
    except (RuntimeError, OSError, subprocess.TimeoutExpired, ValueError) as error:
        result.problem = str(error)


@dataclasses.dataclass
class Plan:
    rounds: int
    seconds: float


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=root / "target/dist/tollkeeper", help="the service to measure (target/dist/tollkeeper)")
    parser.add_argument("--quick", action="store_true", help="3 rounds of 1.2 s instead of 7 of 3 s")
    parser.add_argument("--only", default="", metavar="TEXT", help="only paths whose names contain this")
    parser.add_argument("--out", default=root / "bench/services", metavar="FOLDER", help="where RESULTS.md and services.svg go")
    parser.add_argument("--peers", default=root / "target/peers", metavar="FOLDER", help="where peers are built and kept")
    parser.add_argument("--offline", action="store_true", help="take the peers that are there; build none")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float)
    arguments = parser.parse_args()

    atexit.register(stop_all)
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, lambda *_: sys.exit(1))
    begun = time.monotonic()

    def say(text):
        print(f"[{time.monotonic() - begun:4.0f} s] {text}", file=sys.stderr, flush=True)

    if not pathlib.Path(arguments.binary).exists():
        sys.exit(f"{arguments.binary} does not exist; build it with cargo build --profile dist, or name another with --binary")
    peers = Peers(arguments.peers, arguments.offline).gather()
    for name, reason in sorted(peers.missing.items()):
        say(f"{name} is left out: {reason}")
    if "load" not in peers.paths or "floor" not in peers.paths:
        sys.exit("the load was not built")
    plan = Plan(3, 1.2) if arguments.quick else Plan(7, 3.0)
    plan = Plan(arguments.rounds or plan.rounds, arguments.seconds or plan.seconds)
    chosen = [row for row in rows(Contestants(arguments.binary, peers.paths)) if arguments.only.lower() in row.name.lower()]
    measured = []
    with tempfile.TemporaryDirectory(prefix="tollkeeper-bench-") as folder:
        load = Load(peers.paths["load"], folder)
        for nth, row in enumerate(chosen, 1):
            measured.append((row, measure(row, load, plan, lambda text: say(f"{nth}/{len(chosen)} {text}"))))
    out = pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    page = report.page(measured, plan, peers, time.monotonic() - begun)
    (out / "RESULTS.md").write_text(page)
    (out / "services.svg").write_text(report.picture(measured))
    say(f"wrote {out}/RESULTS.md and services.svg")
    print(page)


if __name__ == "__main__":
    main()
