"""A coroutine function runs in the event loop of its worker."""

import asyncio
import os

import zkplan


async def fetch(name: str) -> str:
    await asyncio.sleep(0.1)
    return f"{name} for {zkplan.current().name}"


async def fetch_all(names: list[str]) -> list[str]:
    return await asyncio.gather(*map(fetch, names))


with zkplan.connect(os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")) as client:
    with client.create_plan("async") as plan:
        pages = plan.add_task(fetch_all, [["one", "two"]], name="pages")
    print(pages.result(timeout=60))
