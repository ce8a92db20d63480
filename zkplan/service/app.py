"""The application: it joins the routes, the entrance, the errors, the health checks and the
page."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

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
from . import events, histories, plan_views, plans, root, schedules, tasks, updates, work
from .answers import Problem, Same, not_modified, problem_of
from .entrance import Bodies, Entrance, Options
from .events import Watcher
from .lease_calls import Work
from .parameters import ClientOf, Link, needs
from .tokens import Tokens

log = get_logger("zkplan.service")
#: Each module has a `router`; a new one needs its line here alone.
_ROUTERS: tuple[APIRouter, ...] = (
    plans.router,
    plans.actions_router,
    tasks.router,
    tasks.results_router,
    root.router,
    root.caller_router,
    root.workers_router,
    work.router,
    updates.router,
    schedules.router,
    plan_views.graph_router,
    histories.router,
    histories.logs_router,
    plan_views.znodes_router,
    events.router,
)
_TEXT = """
The plans of one root of zkplan. Times are seconds since 1970, durations are seconds, both with
fractions. Errors are `application/problem+json`: `detail` says what happened, `todo` what to do.
"""


def create_app(link: Link, tokens: Tokens | None, options: Options | None = None) -> FastAPI:
    """The application of a service. Without `tokens` it is open: whoever reaches it may do all."""
    options = options or Options()
    watcher = Watcher(link, options.looks)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await watcher.close()
            await app.state.work.close()

    app = FastAPI(
        title="zkplan",
        description=_TEXT.strip(),
        version=__version__,
        openapi_url=None,  # see _add_contract
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
        lifespan=life,
        redirect_slashes=False,
    )
    app.state.link, app.state.watcher, app.state.options = link, watcher, options
    app.state.tokens, app.state.readiness = tokens, Readiness(link)
    app.state.work = Work(link)
    app.state.contract = Contract(app)
    for router in _ROUTERS:
        app.include_router(router, prefix="/v1")
    app.include_router(health_router)
    _add_contract(app)
    _handle_errors(app, link)
    add_page(app, options.page)
    # The last one that is added is the first that sees a request.
    app.add_middleware(Bodies, most=options.body_max)
    app.add_middleware(Entrance, tokens=tokens, options=options)
    return app


def _add_contract(app: FastAPI) -> None:
    """Everybody may ask for it, so it is made once."""
    made: list[bytes] = []

    async def contract() -> Response:
        if not made:
            made.append(json.dumps(app.openapi(), separators=(",", ":")).encode())
        return Response(made[0], media_type="application/json")

    app.add_api_route("/v1/openapi.json", contract, include_in_schema=False)


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
        found = error.errors() if isinstance(error, RequestValidationError) else []
        return _input_problem(found).response()

    app.add_exception_handler(ZkplanError, of_zkplan)
    app.add_exception_handler(HTTPException, of_http)
    app.add_exception_handler(RequestValidationError, of_input)
    app.add_exception_handler(Same, not_modified)


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
    """What is wrong with a request, place by place. Nothing that was sent is sent back."""
    told = [
        f"{'.'.join(str(part)[:60] for part in each['loc'][:8])}: {each['msg'][:200]}"
        for each in found[:10]
    ]
    more = f"; and {len(found) - 10} more" if len(found) > 10 else ""
    is_body = any(each["type"] == "json_invalid" for each in found)
    return Problem(
        400 if is_body else 422,
        "not-json" if is_body else "invalid-request",
        "; ".join(told) + more,
        "Change what the detail names. The contract is at /v1/openapi.json.",
    )


# ---- The contract, asked for what a route takes: its methods, and the parameters of its query.


class _Known(NamedTuple):
    """The path of a route as a pattern, and the names in the query of each of its methods."""

    pattern: re.Pattern[str]
    methods: dict[str, frozenset[str]]


class Contract:
    """What the contract of an application says of its paths."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    @cached_property
    def _known(self) -> list[_Known]:
        found = []
        for path, methods in self._app.openapi()["paths"].items():
            names = {
                method.upper(): frozenset(
                    each["name"] for each in of.get("parameters", ()) if each["in"] == "query"
                )
                for method, of in methods.items()
            }
            found.append(_Known(compile_path(path)[0], names))
        return found

    def methods(self, path: str) -> list[str]:
        """The methods of a path; none if it has no such path."""
        for known in self._known:
            if known.pattern.match(path):
                return sorted(known.methods)
        return []

    def check_query(self, request: Request) -> None:
        """Raise Problem for a parameter that nobody would look at: most likely a typing error."""
        if not request.query_params:
            return
        for known in self._known:
            names = known.methods.get(request.method)
            if names is None or not known.pattern.match(request.url.path):
                continue
            for name in request.query_params:
                if name not in names:
                    told = ", ".join(sorted(names)) or "none"
                    raise Problem(
                        422,
                        "unknown-parameter",
                        f"the query has no parameter {name[:60]!r}",
                        f"It may have: {told}.",
                    )
            return


# ---- Routes for whoever watches the service: whether it lives, whether it can work, metrics.


health_router = APIRouter(include_in_schema=False)
#: For so many seconds what was found counts.
FRESH_S = 1.0


@health_router.get("/healthz")
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


@health_router.get("/readyz")
async def readyz(request: Request) -> PlainTextResponse:
    """Whether it reads the root."""
    await request.app.state.readiness.check()
    return PlainTextResponse("ok\n")


@health_router.get("/metrics", dependencies=[needs("read")])
def metrics(request: Request, client: ClientOf) -> PlainTextResponse:
    """The metrics of the root, for Prometheus."""
    try:
        # Loaded here, for a service need not have what it needs.
        from ..integrations.prometheus import RootCollector
    except ZkplanError as error:
        raise Problem(404, "no-metrics", str(error), "Install it where the service runs.") from None
    # It remembers which plans have ended, so it is kept.
    state = request.app.state
    if getattr(state, "collects_for", None) is not client:
        state.collector, state.collects_for = RootCollector(client), client
    return PlainTextResponse(state.collector.text())


# ---- The files of the page, as they lie in the package.


def add_page(app: FastAPI, folder: Path) -> None:
    """Serve index.html at `/`, and what is in the folder `assets` below `/assets/`."""

    async def index() -> Response:
        file = folder / "index.html"
        if not file.is_file():
            raise Problem(404, "no-page", "this service has no page", "Ask for /v1/plans.")
        return FileResponse(file)

    app.add_api_route("/", index, include_in_schema=False, response_class=Response)
    if (folder / "assets").is_dir():
        app.mount("/assets", StaticFiles(directory=folder / "assets"), name="assets")
