"""FastAPI with a limit on everything, a stricter one on logging in, and one by user.

    uvicorn fastapi_app:app
"""

import os
from typing import Annotated, Optional

from fastapi import Depends, FastAPI, Header

from tollkeeper.asgi import RateLimitMiddleware
from tollkeeper.fastapi import Limits

STORE = os.environ.get("STORE", "memory:")  # "redis://127.0.0.1:6379" for several processes

app = FastAPI()
app.add_middleware(RateLimitMiddleware, limit="100/min burst 20", store=STORE)
limit = Limits(store=STORE)


async def current_user(x_user: Annotated[Optional[str], Header()] = None) -> Optional[str]:
    return x_user


@app.post("/login", dependencies=[Depends(limit("5/min", by="ip"))])
async def login() -> dict[str, bool]:
    return {"ok": True}


@app.get("/reports", dependencies=[Depends(limit(["2/s burst 5", "100/day"], by=current_user))])
async def reports(user: Annotated[Optional[str], Depends(current_user)]) -> dict[str, Optional[str]]:
    return {"user": user}
