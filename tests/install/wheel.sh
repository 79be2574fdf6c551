# The wheel: installed with pip and nothing else, and asked.
set -euo pipefail
pip install -q --root-user-action=ignore --break-system-packages --no-index --find-links /artifacts tollkeeper-ratelimit
cd /tmp
python3 - <<'PYTHON'
import asyncio
from importlib.metadata import version

from tollkeeper import Limiter, keyed

limiter = keyed("2/min")
assert [limiter.check("a").allowed for _ in range(3)] == [True, True, False]


async def ask():
    rules = Limiter.from_rules([{"name": "per-user", "key": "{user_id}", "limit": "1/min"}])
    return [(await rules.check({"user_id": "42"})).allowed for _ in range(2)]


assert asyncio.run(ask()) == [True, False]
print("wheel", version("tollkeeper-ratelimit"))
PYTHON
