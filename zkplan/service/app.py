"""The application: routes, the entrance before them, errors as problems, and the page."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ..basics.version import __version__
from ..errors import ZkplanError
from ..log import get_logger
from . import (
    caller,
    graphs,
    health,
    histories,
    logs,
    plan_actions,
    plans,
    results,
    root,
    schedules,
    stream,
    tasks,
    updates,
    work,
    workers,
    znodes,
)
from .bodies import Bodies
from .contract import Contract
from .entrance import Entrance
from .etags import Same, not_modified
from .link import Link
from .options import Options
from .page_files import add_page
from .problems import Problem, problem_of
from .tokens import Tokens
from .watcher import Watcher
from .working import Work

log = get_logger("zkplan.service")
#: Each module has a `router`; a new one needs its line here alone.
_ROUTERS: tuple[APIRouter, ...] = (
    plans.router,
    plan_actions.router,
    tasks.router,
    results.router,
    root.router,
    caller.router,
    workers.router,
    work.router,
    updates.router,
    schedules.router,
    graphs.router,
    histories.router,
    logs.router,
    znodes.router,
    stream.router,
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
    app.state.tokens, app.state.readiness = tokens, health.Readiness(link)
    app.state.work = Work(link)
    app.state.contract = Contract(app)
    for router in _ROUTERS:
        app.include_router(router, prefix="/v1")
    app.include_router(health.router)
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
