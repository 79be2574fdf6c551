"""What was measured, as Markdown and as a picture."""

import datetime
import html
import platform

WORK = """Every contestant of a path gets the same work, written down in `contestants.py`: a check of one request by a client whose name is drawn
uniformly from 10,000, under a limit of 1,000,000 a second for each client that nobody reaches (three rules: for each client, for each plan,
and for everybody). *Denied*: ten clients with one request a day (nginx, HAProxy: one a minute). Requests differ where protocols do:
throttlecrab and gubernator have their own, and envoyproxy/ratelimit takes JSON on `/json`. Answers differ too: Tollkeeper's
name each rule with what remains and when it resets, limitador's here say only yes or no. Nothing of Tollkeeper is switched off: metrics, insight, the audit log and all limits on input are on.

*Closed loop*: 50 connections, each sends when its last answer has come; *half load*: half of the requests a second that the contestant managed, in
an open loop, where the latency of a late request counts from when it was due. CPU is the time of all threads of the service for each
request, then that of other processes involved. *Of floor* is the throughput beside a server that does nothing, written with the same libraries, in the same run.
Service, stores and load share the machine. Tollkeeper's threads let others finish their turn while they are busy (`SCHED_BATCH`), which leaves the load more of it:
so it can be ahead of a server that does nothing, and where all processors are busy a request that has to wait for its turn waits longer (p99). What that contributes shows in
the second row, the same floor started with `chrt --batch 0`."""


def page(measured, plan, peers, seconds):
    today = datetime.date.today().strftime("%-d %B %Y")
    lines = [
        "# Tollkeeper beside its peers",
        "",
        f"Measured on {today} by `./run bench --services --rounds {plan.rounds} --seconds {plan.seconds:g}`, in {seconds / 60:.0f} minutes, on {machine()}. Medians of {plan.rounds} rounds of "
        f"{plan.seconds:g} s, in which the contestants take turns, and the lowest..highest.",
        "",
        WORK,
        "",
        "![CPU microseconds a request](services.svg)",
    ]
    for row, results in measured:
        lines += ["", f"## {row.name}", "", *table(results)]
    if peers.missing:
        lines += ["", "## Left out", ""]
        lines += [f"- {name}: {reason}" for name, reason in sorted(peers.missing.items())]
    return "\n".join(lines) + "\n"


def table(results):
    lines = [
        "| contestant | requests/s | spread | of floor | CPU µs | spread | others' CPU µs | p50 ms | p99 ms | half load: CPU µs | p50 ms | p99 ms |",
        "|---|---:|---|---:|---:|---|---|---:|---:|---:|---:|---:|",
    ]
    floor = next((each for each in results if each.contestant.startswith("floor") and each.rounds), None)
    for each in results:
        if not each.rounds:
            lines.append(f"| {each.contestant} | not measured: {plain(each.problem)} |")
            continue
        pace, cpu = (lambda one: one["per_second"]), (lambda one: one["cpu_us"]["service"])
        rate = each.median(pace)
        of_floor = f"{rate / floor.median(pace):.2f}" if floor else ""
        low, high = each.spread(pace)
        cheap, dear = each.spread(cpu)
        others = ", ".join(f"{name} {each.median(lambda one: one['cpu_us'][name]):.1f}" for name in each.rounds[0]["cpu_us"] if name != "service")
        half = ["", "", ""]
        if each.half:
            half = [f"{each.half['cpu_us']['service']:.1f}", ms(each.half["p50_us"]), ms(each.half["p99_us"])]
        p50, p99 = (each.median(lambda one: one[which]) for which in ("p50_us", "p99_us"))
        lines.append(
            f"| {each.contestant}{remark(each)} | {rate:,.0f} | {low:,.0f}..{high:,.0f} | {of_floor} | {each.median(cpu):.1f} | {cheap:.1f}..{dear:.1f} "
            f"| {others} | {ms(p50)} | {ms(p99)} | {' | '.join(half)} |"
        )
    return lines


def remark(result):
    """What a reader must know: answers that were not as expected."""
    notes = []
    failed = sum(sum(one["failed"].values()) for one in result.rounds)
    if failed:
        notes.append(f"{failed} failed: {plain(next(iter(next(one['failed'] for one in result.rounds if one['failed']))))}")
    if result.problem:
        notes.append(plain(result.problem))
    return f" ({'; '.join(notes)})" if notes else ""


def plain(text):
    return " ".join((text or "").split()).replace("|", "/")[:200]


def ms(micros):
    return f"{micros / 1000:.2f}"


def machine():
    model, cores = "", 0
    try:
        with open("/proc/cpuinfo") as info:
            for line in info:
                if line.startswith("model name"):
                    model, cores = line.split(":", 1)[1].strip(), cores + 1
    except OSError:
        pass
    return f"{cores} cores of {model} ({platform.system()} {platform.release()})"


def picture(measured):
    """Bars of CPU microseconds a request, one group a path: the service dark, other processes light."""
    bar, gap, left, width = 16, 26, 330, 1000
    bars, y = [], 40
    for row, results in measured:
        shown = [each for each in results if each.rounds]
        if not shown:
            continue
        costs = [(each, [(name, each.median(lambda one: one["cpu_us"][name])) for name in each.rounds[0]["cpu_us"]]) for each in shown]
        # The upstream and Envoy serve all contestants alike.
        costs = [(each, [part for part in parts if part[0] in ("service", "redis")]) for each, parts in costs]
        most = max(sum(cost for _, cost in parts) for _, parts in costs) or 1
        bars.append(f'<text x="10" y="{y}" class="path">{html.escape(row.name)}</text>')
        y += 8
        for each, parts in costs:
            x, kind = left, "ours" if each.contestant.startswith("tollkeeper") else "floor" if "floor" in each.contestant else "peer"
            bars.append(f'<text x="{left - 8}" y="{y + bar - 4}" text-anchor="end">{html.escape(each.contestant)}</text>')
            for name, cost in parts:
                wide = (width - left - 130) * cost / most
                opacity = 1 if name == "service" else 0.45
                bars.append(f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{bar - 3}" class="{kind}" opacity="{opacity}"/>')
                x += wide
            text = " + ".join(f"{cost:.1f}{' Redis' if name == 'redis' else ''}" for name, cost in parts)
            bars.append(f'<text x="{x + 6:.1f}" y="{y + bar - 4}">{text}</text>')
            y += bar + 2
        y += gap
    style = ("text{font:12px sans-serif;fill:#444}.path{font-weight:bold;font-size:14px;fill:#111}.head{font-size:13px}"
             ".ours{fill:#1a6fb5}.peer{fill:#b0762d}.floor{fill:#999}rect.bg{fill:#fff}")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" width="{width}" height="{y}"><style>{style}</style>'
            f'<rect class="bg" width="{width}" height="{y}"/><text x="10" y="18" class="head">CPU microseconds a request (less is better)</text>'
            + "".join(bars) + "</svg>\n")
