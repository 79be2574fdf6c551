"""Limits without a web framework: one key, rules, slots, and costs that are known later."""

import asyncio

from tollkeeper import Limiter, keyed


async def main() -> None:
    logins = keyed("5/min")
    decision = logins.check("198.51.100.7")
    print(f"allowed: {decision.allowed}, left: {decision.remaining}")

    # Slots: at most two exports of a user at the same time.
    exports = Limiter.from_rules([{"name": "exports", "key": "{user_id}", "limit": 2, "algorithm": "concurrency"}])
    async with exports.acquire({"user_id": "42"}) as permit:
        if permit.allowed:
            print("exporting")

    # A cost that is known later: reserve an estimate, then settle what was used.
    limiter = Limiter.from_rules([{"name": "tokens", "key": "{user_id}", "limit": "10,000/day"}])
    async with limiter.reserve({"user_id": "42"}, cost=4000) as reservation:
        if reservation.allowed:
            used = 2311  # ... ask a model ...
            for settled in await reservation.settle(used):
                print(f"{settled.rule}: {settled.remaining} left")

    verdict = await limiter.check({"user_id": "42"}, cost=9000)
    print(f"allowed: {verdict.allowed}, by: {verdict.limiting}, wait: {verdict.retry_after:.0f} s")


if __name__ == "__main__":
    asyncio.run(main())
