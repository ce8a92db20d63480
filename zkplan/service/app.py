"""The application: it joins the routes, the middleware, the error handlers and the page."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import compile_path
from starlette.staticfiles import StaticFiles

from ..basics import __version__
from ..basics.log import get_logger
from ..errors import ZkplanError
from ..protocol.requests import ReadData
from . import (
    events,
    histories,
    plan_views,
    plans,
    results,
    root,
    schedules,
    task_adds,
    tasks,
    updates,
    work,
)
from .answers import NotModified, Problem, not_modified, problem_of
from .entrance import Bodies, Entrance, Options
from .events import Watcher
from .parameters import ClientOf, Link, needs
from .tokens import Tokens
from .work import LeaseCalls

log = get_logger("zkplan.service")
#: The order of the routes in the contract.
_ROUTERS: tuple[APIRouter, ...] = (
    plans.router,
    plans.actions_router,
    tasks.router,
    task_adds.router,
    results.router,
    root.router,
    root.caller_router,
    root.workers_router,
    work.router,
    updates.router,
    schedules.router,
    plan_views.router,
    histories.router,
    histories.logs_router,
    events.router,
)
_TEXT = """
The plans of one root of zkplan. Times are seconds since 1970, durations are seconds, both with
fractions. Errors are `application/problem+json`: `detail` says what happened, `todo` what to do.
"""


def create_app(link: Link, tokens: Tokens | None, options: Options | None = None) -> FastAPI:
    """The application of a service. Without `tokens` anyone who reaches it may do everything."""
    options = options or Options()
    watcher = Watcher(link, options.looks)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await watcher.close()
            await app.state.lease_calls.close()

    app = FastAPI(
        title="zkplan",
        description=_TEXT.strip(),
        version=__version__,
        openapi_url=None,  # see `contract` below
        docs_url=None,  # its page would load scripts from another host
        redoc_url=None,
        lifespan=life,
        redirect_slashes=False,
    )
    app.state.link, app.state.watcher, app.state.options = link, watcher, options
    app.state.tokens, app.state.readiness = tokens, Readiness(link)
    app.state.lease_calls = LeaseCalls(link)
    app.state.contract = Contract(app)
    for router in _ROUTERS:
        app.include_router(router, prefix="/v1")
    app.include_router(health_router)
    _handle_errors(app, link)
    _add_page(app, options.page)
    # The middleware that is added last sees a request first.
    app.add_middleware(Bodies, most=options.body_max)
    app.add_middleware(Entrance, tokens=tokens, options=options)
    return app


def _handle_errors(app: FastAPI, link: Link) -> None:
    async def of_zkplan(_: Request, error: Exception) -> Response:
        link.note(error)
        problem = problem_of(error if isinstance(error, ZkplanError) else ZkplanError(str(error)))
        if problem.status_code >= 500:
            log.warning("%s: %s", type(error).__name__, error)
        return problem.response()

    async def of_http(request: Request, error: Exception) -> Response:
        problem = _http_problem(error)
        if problem.status_code == 405:
            methods = app.state.contract.methods(request.url.path) or ["GET"]
            problem.headers = {"Allow": ", ".join(methods)}
        return problem.response()

    async def of_input(_: Request, error: Exception) -> Response:
        errors = error.errors() if isinstance(error, RequestValidationError) else []
        return _input_problem(errors).response()

    app.add_exception_handler(ZkplanError, of_zkplan)
    app.add_exception_handler(HTTPException, of_http)
    app.add_exception_handler(RequestValidationError, of_input)
    app.add_exception_handler(NotModified, not_modified)


def _http_problem(error: Exception) -> Problem:
    if isinstance(error, Problem):
        return error
    status, detail, headers = 500, "", None
    if isinstance(error, HTTPException):
        status, detail, headers = error.status_code, str(error.detail), error.headers
    kinds = {400: "wrong-body", 404: "no-such-address", 405: "wrong-method"}
    todo = "The contract is at /v1/openapi.json." if status in kinds else ""
    return Problem(status, kinds.get(status, "http"), detail, todo, headers=headers)


def _input_problem(found: Any) -> Problem:
    """The problem for an invalid request: its faults, place by place, without the sent values."""
    places = [
        f"{'.'.join(str(part)[:60] for part in each['loc'][:8])}: {each['msg'][:200]}"
        for each in found[:10]
    ]
    more = f"; and {len(found) - 10} more" if len(found) > 10 else ""
    is_body = any(each["type"] == "json_invalid" for each in found)
    return Problem(
        400 if is_body else 422,
        "not-json" if is_body else "invalid-request",
        "; ".join(places) + more,
        "Change what the detail names. The contract is at /v1/openapi.json.",
    )


class Contract:
    """The OpenAPI document of an application, with the methods and query names of its paths."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    @cached_property
    def text(self) -> bytes:
        return json.dumps(self._app.openapi(), separators=(",", ":")).encode()

    @cached_property
    def _paths(self) -> list[tuple[re.Pattern[str], dict[str, set[str]]]]:
        """Each path as a pattern, with its methods and the names in their queries."""
        return [
            (
                compile_path(path)[0],
                {
                    method.upper(): {
                        each["name"] for each in of.get("parameters", ()) if each["in"] == "query"
                    }
                    for method, of in methods.items()
                },
            )
            for path, methods in self._app.openapi()["paths"].items()
        ]

    def methods(self, path: str) -> list[str]:
        """The methods of a path; none if there is no such path."""
        return next(
            (sorted(methods) for pattern, methods in self._paths if pattern.match(path)), []
        )

    def check_query(self, request: Request) -> None:
        """Raises Problem for a parameter that no route reads: most likely a typing error."""
        if not request.query_params:
            return
        for pattern, methods in self._paths:
            names = methods.get(request.method)
            if names is None or not pattern.match(request.url.path):
                continue
            unknown = [name for name in request.query_params if name not in names]
            if unknown:
                raise Problem(
                    422,
                    "unknown-parameter",
                    f"the query has no parameter {unknown[0][:60]!r}",
                    f"It may have: {', '.join(sorted(names)) or 'none'}.",
                )
            return


# ---- Routes for monitoring.


health_router = APIRouter(include_in_schema=False)
#: The result of a read counts for this many seconds.
FRESH_S = 1.0


@health_router.get("/v1/openapi.json")
async def contract(request: Request) -> Response:
    """The contract. Anybody may ask for it, so it is made only once."""
    return Response(request.app.state.contract.text, media_type="application/json")


@health_router.get("/healthz")
async def healthz() -> PlainTextResponse:
    """Whether the process answers."""
    return PlainTextResponse("ok\n")


class Readiness:
    """Checks whether the root can be read. All requests within a second share one read, so that
    frequent requests cost ZooKeeper nothing. The read uses no thread that requests wait for."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._look: asyncio.Task[None] | None = None
        self._looked = 0.0

    async def check(self) -> None:
        """Wait for the result of a read. Raises the errors of the read."""
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


@health_router.get("/readyz")
async def readyz(request: Request) -> PlainTextResponse:
    """Whether the service can read the root."""
    await request.app.state.readiness.check()
    return PlainTextResponse("ok\n")


@health_router.get("/metrics", dependencies=[needs("read")])
def metrics(request: Request, client: ClientOf) -> PlainTextResponse:
    """The metrics of the root, for Prometheus."""
    try:
        # Loaded here, since a service need not have prometheus_client.
        from ..integrations.prometheus import RootCollector
    except ZkplanError as error:
        raise Problem(404, "no-metrics", str(error), "Install it where the service runs.") from None
    # The collector is kept, since it remembers which plans have ended.
    state = request.app.state
    if getattr(state, "collects_for", None) is not client:
        state.collector, state.collects_for = RootCollector(client), client
    return PlainTextResponse(state.collector.text())


def _add_page(app: FastAPI, folder: Path) -> None:
    """Serve index.html at `/`, and the folder `assets` at `/assets/`."""

    async def index() -> Response:
        file = folder / "index.html"
        if not file.is_file():
            raise Problem(404, "no-page", "this service has no page", "Ask for /v1/plans.")
        return FileResponse(file)

    app.add_api_route("/", index, include_in_schema=False, response_class=Response)
    if (folder / "assets").is_dir():
        app.mount("/assets", StaticFiles(directory=folder / "assets"), name="assets")
