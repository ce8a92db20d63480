"""Routes for whoever watches the service: whether it lives, whether it can work, metrics."""

from __future__ import annotations

import asyncio
import time

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse

from ..errors import ZkplanError
from ..protocol.requests import ReadData
from .asked import ClientOf, needs
from .link import Link
from .problems import Problem

router = APIRouter(include_in_schema=False)
#: For so many seconds what was found counts.
FRESH_S = 1.0


@router.get("/healthz")
async def healthz() -> PlainTextResponse:
    """Whether the process answers."""
    return PlainTextResponse("ok\n")


class Readiness:
    """Whether the root can be read. All who ask within a second share one look, so that whoever
    asks often costs ZooKeeper nothing; it needs none of the threads that requests wait for."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._look: asyncio.Task[None] | None = None
        self._looked = 0.0

    async def check(self) -> None:
        """Raises what reading raises."""
        if self._look is None or (self._look.done() and time.monotonic() - self._looked > FRESH_S):
            self._look = asyncio.create_task(asyncio.to_thread(self._read))
        await asyncio.wait([self._look])
        self._look.result()

    def _read(self) -> None:
        try:
            client = self._link.renewed() if self._link.is_lost else self._link.client
            client.transport.ask(ReadData(client.root))
        finally:
            self._looked = time.monotonic()


@router.get("/readyz")
async def readyz(request: Request) -> PlainTextResponse:
    """Whether it reads the root."""
    await request.app.state.readiness.check()
    return PlainTextResponse("ok\n")


@router.get("/metrics", dependencies=[needs("read")])
def metrics(request: Request, client: ClientOf) -> PlainTextResponse:
    """The metrics of the root, for Prometheus."""
    try:
        # Loaded here, for a service need not have what it needs.
        from ..metrics import RootCollector
    except ZkplanError as error:
        raise Problem(404, "no-metrics", str(error), "Install it where the service runs.") from None
    # It remembers which plans have ended, so it is kept.
    state = request.app.state
    if getattr(state, "collects_for", None) is not client:
        state.collector, state.collects_for = RootCollector(client), client
    return PlainTextResponse(state.collector.text())
