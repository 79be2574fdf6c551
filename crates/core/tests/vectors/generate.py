#!/usr/bin/env python3
"""Writes decisions.json and verdicts.json: what every store and every binding must answer.

The model here is not a translation of the Rust code. It keeps the history of what was admitted and applies the
definitions of the laws to it with exact fractions, however slowly. Run it from anywhere; the output is the same each
time (fixed seed). `--check` compares with the files instead of writing them.
"""

import bisect
import json
import math
import random
import sys
from datetime import date, datetime, timedelta, timezone
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from zoneinfo import ZoneInfo

HERE = Path(__file__).parent
SECOND, MINUTE, HOUR, DAY = 10**6, 60 * 10**6, 3600 * 10**6, 86400 * 10**6
START = 1_700_000_000_123_457


class Bucket:
    """token_bucket, gcra and leaky_bucket: a level that drains at the rate and may not exceed the burst."""

    def __init__(self, quota):
        self.rate = Fraction(quota["count"], quota["period_us"])
        self.limit = quota["burst"]
        self.leaky = quota["algorithm"] == "leaky_bucket"
        self.level, self.at = Fraction(0), None

    def level_at(self, now):
        return Fraction(0) if self.at is None else max(Fraction(0), self.level - (now - self.at) * self.rate)

    def wait(self, cost, now):
        over = self.level_at(now) + cost - self.limit
        return max(0, math.ceil(over / self.rate))

    def delay(self, now):
        return math.ceil(self.level_at(now) / self.rate) if self.leaky else 0

    def admit(self, cost, now):
        self.level, self.at = self.level_at(now) + cost, now

    def remaining(self, now):
        return math.floor(self.limit - self.level_at(now))

    def reset(self, now):
        return math.ceil(self.level_at(now) / self.rate)


class History:
    """The window algorithms and concurrency: every admitted (time, cost), counted as the definition says."""

    def __init__(self, quota):
        self.window, self.limit, self.algorithm = quota["period_us"], quota["count"], quota["algorithm"]
        self.admitted = []

    def used(self, now):
        if self.algorithm in ("sliding_window_log", "concurrency"):
            return Fraction(sum(cost for at, cost in self.admitted if now - self.window < at <= now))
        index = now // self.window
        in_window = lambda i: sum(cost for at, cost in self.admitted if at // self.window == i)
        if self.algorithm == "fixed_window":
            return Fraction(in_window(index))
        return in_window(index) + in_window(index - 1) * (1 - Fraction(now - index * self.window, self.window))

    def wait(self, cost, now):
        """The least w such that the request passes at now + w. What is used only falls, so search by halves."""
        if self.used(now) + cost <= self.limit:
            return 0
        low, high = 0, 2 * self.window
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.used(now + middle) + cost <= self.limit else (middle, high)
        return high

    def delay(self, now):
        return 0

    def admit(self, cost, now):
        self.admitted.append((now, cost))

    def remaining(self, now):
        return math.floor(self.limit - self.used(now))

    def reset(self, now):
        if self.used(now) == 0:
            return 0
        last = max(at for at, _ in self.admitted)
        if self.algorithm in ("sliding_window_log", "concurrency"):
            return last + self.window - now
        windows = 1 if self.algorithm == "fixed_window" else 2
        return (last // self.window + windows) * self.window - now


@lru_cache(maxsize=None)
def midnight(zone, day):
    """The first second at which the zone's clocks show midnight of this day, or later. Clocks change at quarters of an hour."""
    shown = lambda second: datetime.fromtimestamp(second, ZoneInfo(zone)).replace(tzinfo=None)
    wanted = datetime(day.year, day.month, day.day)
    around = int(wanted.replace(tzinfo=timezone.utc).timestamp())
    return next(second for second in range(around - 26 * 3600, around + 26 * 3600, 900) if shown(second) >= wanted)


@lru_cache(maxsize=None)
def starts(unit, zone, anchor):
    """The starts of all windows from 2022 to 2032, in microseconds. Some days are skipped altogether."""
    days, day = [], date(2022, 1, 1)
    while day < date(2032, 1, 1):
        next_month = date(day.year + day.month // 12, day.month % 12 + 1, 1)
        clamped = min(anchor, (next_month - timedelta(days=1)).day)
        is_first = {"day": True, "week": day.isoweekday() == anchor, "month": day.day == clamped,
                    "year": (day.month, day.day) == (1, anchor)}[unit]
        days += [day] if is_first else []
        day += timedelta(days=1)
    return sorted({midnight(zone, day) * SECOND for day in days})


class Calendar(History):
    """fixed_window by the calendar of a time zone."""

    def __init__(self, quota):
        super().__init__(quota)
        calendar = quota["calendar"]
        self.starts = starts(calendar["unit"], calendar["timezone"], calendar["anchor_day"])

    def index(self, now):
        return bisect.bisect_right(self.starts, now)

    def used(self, now):
        return Fraction(sum(cost for at, cost in self.admitted if self.index(at) == self.index(now)))

    def reset(self, now):
        return self.starts[self.index(now)] - now if self.used(now) else 0


def model(quota):
    if "calendar" in quota:
        return Calendar(quota)
    buckets = ("token_bucket", "gcra", "leaky_bucket")
    return Bucket(quota) if quota["algorithm"] in buckets else History(quota)


def alone(bucket, cost, now):
    """What one rule says by itself: allowed, retry_after (None: never), delay."""
    if cost > bucket.limit:
        return False, None, 0
    if cost == 0:
        return True, 0, bucket.delay(now)
    wait = bucket.wait(cost, now)
    return wait == 0, wait, bucket.delay(now) if wait == 0 else 0


def decision_case(rng, name, quota, steps):
    bucket, now, out = model(quota), START + rng.randrange(DAY), []
    typical = max(1, quota["period_us"] // quota["count"])
    retry = 0
    for _ in range(steps):
        now += rng.choice([0, 0, 1, typical // 2, typical, retry or 0, max(0, (retry or 0) - 1), rng.randrange(typical * 4 + 1),
                           rng.randrange(quota["period_us"] + 1), quota["period_us"], 3 * quota["period_us"] if rng.random() < 0.1 else 0])
        cost = rng.choice([1, 1, 1, 1, 2, 3, 0, bucket.limit, bucket.limit + 1, rng.randrange(bucket.limit + 1)])
        allowed, retry, delay = alone(bucket, cost, now)
        if allowed and cost:
            bucket.admit(cost, now)
        out.append([now, cost, allowed, retry, bucket.remaining(now), bucket.reset(now), delay])
    return {"name": name, "quota": quota, "steps": out}


def decisions(rng):
    rates = [(10, SECOND, 50), (3, SECOND, 3), (7919, SECOND, 7919), (1, DAY, 1), (5, 90 * SECOND, 20), (6000, MINUTE, 100),
             (1, SECOND, 1), (1000003, HOUR, 500), (1234567, DAY, 1234567), (7, 100_000, 9)]
    cases = []
    for algorithm in ("token_bucket", "gcra", "leaky_bucket"):
        for count, period, burst in rates:
            quota = {"algorithm": algorithm, "count": count, "period_us": period, "burst": burst}
            cases.append(decision_case(rng, f"{algorithm} {count} per {period} us, burst {burst}", quota, 40))
    windows = [(10, SECOND), (3, SECOND), (1, DAY), (5, 90 * SECOND), (100, MINUTE), (7919, HOUR)]
    for algorithm in ("fixed_window", "sliding_window_log", "sliding_window_counter", "concurrency"):
        for count, period in windows:
            quota = {"algorithm": algorithm, "count": count, "period_us": period, "burst": count}
            cases.append(decision_case(rng, f"{algorithm} {count} per {period} us", quota, 40))
    # Cases of years are shorter, to end before 2032.
    calendars = [("month", "UTC", 1), ("month", "Europe/Berlin", 15), ("month", "America/New_York", 31), ("week", "UTC", 1),
                 ("week", "Europe/Berlin", 7), ("day", "Europe/Berlin", 1), ("day", "Africa/Cairo", 1), ("day", "America/Havana", 1),
                 ("day", "Australia/Lord_Howe", 1), ("month", "Asia/Kathmandu", 1), ("year", "UTC", 1), ("year", "Asia/Tokyo", 20)]
    usual = {"day": DAY, "week": 7 * DAY, "month": 30 * DAY, "year": 365 * DAY}
    for unit, zone, anchor in calendars:
        for count in (3, 1000):
            quota = {"algorithm": "fixed_window", "count": count, "period_us": usual[unit], "burst": count,
                     "calendar": {"unit": unit, "timezone": zone, "anchor_day": anchor}}
            name = f"fixed_window {count} per {unit} in {zone} from day {anchor}"
            cases.append(decision_case(rng, name, quota, 10 if unit == "year" else 40))
    return {
        "about": "Each case starts fresh. A step is [at_us, cost, allowed, retry_after_us (null: never), remaining, "
                 "reset_after_us, delay_us]; an allowed step is charged. burst matters to buckets only. With `calendar` the windows of a fixed_window are those of "
                 "its unit in its time zone, and period_us is only their usual length.",
        "cases": cases,
    }


def verdict_case(rng, name, rules, events):
    """Several rules over users and tenants: all or nothing, shadow rules, costs, rules that do not apply."""
    buckets, now, out = {}, START, []
    for _ in range(events):
        now += rng.choice([0, 0, 1000, 50_000, 100_000, SECOND, rng.randrange(5 * SECOND)])
        attributes = {"user": rng.choice("ab"), "tenant": rng.choice(["t1", "t2"])}
        if rng.random() < 0.15:
            del attributes["user"]
        if rng.random() < 0.5:
            attributes["plan"] = rng.choice(["free", "paid"])
        cost = rng.choice([1, 1, 1, 2, 0, 4])
        rows, states = [], []
        for rule in rules:
            names = rule["key"].strip("{}")
            if rule["key"].startswith("{") and names not in attributes:
                continue
            if any(attributes.get(k) != v for k, v in rule["when"].items()):
                continue
            key = attributes[names] if rule["key"].startswith("{") else rule["key"]
            bucket = buckets.setdefault((rule["name"], key), model(rule["quota"]))
            allowed, retry, delay = alone(bucket, cost * rule["cost"], now)
            rows.append({"rule": rule["name"], "key": key, "allowed": allowed, "shadow": rule["mode"] == "shadow",
                         "limit": bucket.limit, "retry_after_us": retry, "delay_us": delay})
            states.append((bucket, cost * rule["cost"]))
        modes = {rule["name"]: rule["mode"] for rule in rules}
        of_mode = lambda mode: [row for row in rows if modes[row["rule"]] == mode]
        wait = lambda row: math.inf if row["retry_after_us"] is None else row["retry_after_us"]
        denying = [row for row in of_mode("enforce") if not row["allowed"]]
        limiting = max(denying, key=wait, default=None)
        if not denying and of_mode("quota") and not any(row["allowed"] for row in of_mode("quota")):
            denying = of_mode("quota")
            limiting = min(denying, key=wait)
        if not denying:
            for row, (bucket, charge) in zip(rows, states):
                if row["allowed"] and charge:
                    bucket.admit(charge, now)
        for row, (bucket, _) in zip(rows, states):
            row["remaining"], row["reset_after_us"] = bucket.remaining(now), bucket.reset(now)
        out.append({"at_us": now, "attributes": attributes, "cost": cost, "allowed": not denying,
                    "limiting": limiting and limiting["rule"], "retry_after_us": limiting["retry_after_us"] if limiting else 0,
                    "rules": rows})
    return {"name": name, "rules": rules, "events": out}


def rule(name, key, algorithm, count, period, burst=None, cost=1, mode="enforce", when=None):
    quota = {"algorithm": algorithm, "count": count, "period_us": period, "burst": burst or count}
    return {"name": name, "key": key, "when": when or {}, "cost": cost, "mode": mode, "quota": quota}


def verdicts(rng):
    user = rule("user", "{user}", "token_bucket", 3, SECOND, 5)
    tenant = rule("tenant", "{tenant}", "sliding_window_counter", 12, 10 * SECOND)
    everybody = rule("everybody", "global", "fixed_window", 40, MINUTE)
    shadow = rule("stricter", "{user}", "sliding_window_log", 2, 5 * SECOND, mode="shadow")
    free = rule("free", "{user}", "leaky_bucket", 1, SECOND, 4, cost=2, when={"plan": "free"})
    slots = rule("slots", "{tenant}", "concurrency", 6, 3 * SECOND)
    first = rule("first", "{user}", "token_bucket", 1, SECOND, 2, mode="quota")
    second = rule("second", "{tenant}", "fixed_window", 4, 5 * SECOND, mode="quota")
    third = rule("third", "{user}", "sliding_window_log", 3, 5 * SECOND, mode="quota", when={"plan": "paid"})
    cases = [
        verdict_case(rng, "one rule", [user], 60),
        verdict_case(rng, "three tiers", [user, tenant, everybody], 150),
        verdict_case(rng, "a shadow rule beside enforced ones", [shadow, user, everybody], 150),
        verdict_case(rng, "costs, plans and slots", [everybody, free, slots, shadow, user, tenant], 200),
        verdict_case(rng, "alternatives, of which one must have room", [first, second, third], 150),
        verdict_case(rng, "alternatives beside other rules", [everybody, first, shadow, second, user, third], 200),
    ]
    return {"about": "Events in order over one fresh store. `rules` are the rows in rule order; the quota's numbers are "
                     "those of decisions.json.", "cases": cases}


def main():
    fine = True
    for name, content in (("decisions.json", decisions(random.Random(20))), ("verdicts.json", verdicts(random.Random(26)))):
        cases = ",\n".join(json.dumps(case, separators=(",", ":")) for case in content["cases"])
        text = f'{{"about": {json.dumps(content["about"])},\n"cases": [\n{cases}\n]}}\n'
        if "--check" in sys.argv:
            same = (HERE / name).read_text() == text
            print(f"{name}: {'as the model says' if same else 'DIFFERS from the model'}")
            fine &= same
        else:
            (HERE / name).write_text(text)
            print(f"wrote {name}: {len(content['cases'])} cases, {len(text):,} bytes")
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
