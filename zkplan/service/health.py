"""Routes for whoever watches the service: whether it lives, whether it can work, metrics."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse

from ..errors import ZkplanError
from ..protocol.requests import ReadData
from .asked import ClientOf, client_of, needs
from .problems import Problem

router = APIRouter(include_in_schema=False)


@router.get("/healthz")
async def healthz() -> PlainTextResponse:
    """Whether the process answers."""
    return PlainTextResponse("ok\n")


@router.get("/readyz")
async def readyz(request: Request) -> PlainTextResponse:
    """Whether it reads the root."""
    client = await client_of(request)
    await run_in_threadpool(client.transport.ask, ReadData(client.root))
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
