"""Routes of server-sent events: what has changed in a plan, or under the root."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .asked import PlanOf, needs
from .problems import documented
from .watcher import ROOT, Event, Listener, Watcher

router = APIRouter(tags=["events"], responses=documented(404, 422))
#: Seconds between two signs of life.
BEAT_S = 10.0
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}
}
_TEXT = """Server-sent events. The first one of a plan is whole, and so is the one behind a
`problem`. `plan`: numbers of the plan, `counts` of its tasks by state, and the `tasks` whose state
has changed (2 000 at most; `more` says how many are left out; none where only the history has
something new, as what a task prints). `root`: active plans that have changed, those that have
`ended`, and sums. `gone`: the plan was removed. `problem`: ZooKeeper is away, and the stream goes
on. `beat`: nothing has changed for ten seconds. `cut`: this listener is too slow, and the stream
ends.""".replace("\n", " ")


@router.get(
    "/plans/{plan}/events",
    dependencies=[needs("read")],
    response_class=Response,
    responses=_STREAM,
    description=_TEXT,
)
async def plan_events(request: Request, plan: PlanOf) -> Response:
    return EventStream(request.app.state.watcher, plan.number)


@router.get(
    "/events",
    dependencies=[needs("read")],
    response_class=Response,
    responses=_STREAM,
    description=_TEXT,
)
async def root_events(request: Request) -> Response:
    return EventStream(request.app.state.watcher, ROOT)


class EventStream(Response):
    """Sends the events of a listener until it goes, is cut off, or the service stops."""

    def __init__(self, watcher: Watcher, key: str) -> None:
        super().__init__(media_type="text/event-stream")
        self._watcher, self._key = watcher, key
        del self.headers["content-length"]
        self.headers["Cache-Control"] = "no-store"
        self.headers["X-Accel-Buffering"] = "no"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._watcher.listening(self._key, scope["state"]["key"]) as listener:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            sending = asyncio.create_task(_send_events(listener, send))
            leaving = asyncio.create_task(_left(receive))
            both = (sending, leaving)
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in both:
                    each.cancel()
                await asyncio.gather(*both, return_exceptions=True)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_events(listener: Listener, send: Send) -> None:
    number = 0
    while True:
        try:
            event = await listener.next(BEAT_S)
        except asyncio.TimeoutError:
            event = Event("beat", {"when": time.time()})
        if event is None:
            await _send(send, b"", more=False)
            return
        number += 1
        data = json.dumps(event.facts, separators=(",", ":"))
        await _send(send, f"id: {number}\nevent: {event.name}\ndata: {data}\n\n".encode())


async def _send(send: Send, body: bytes, more: bool = True) -> None:
    # It waits while the buffers up to the listener are full, until `patience` ends it.
    await send({"type": "http.response.body", "body": body, "more_body": more})
