"""Routes of work: programs in any language claim, renew, log, complete, fail and release tasks.

`LeaseCalls` has the leases for these routes. A request that waits needs no thread.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from ..client import Client
from ..protocol.features.leases import LEASE_MS_MAX, LEASE_MS_MIN
from ..runtime.context import LOGS_PER_ATTEMPT
from .answers import Problem, documented
from .lease_candidates import REFRESH_S
from .lease_records import BATCH_MAX, ClaimOutcomeOut, Failed, LeasedOut, RenewalOut
from .leases import Leases
from .parameters import CallerOf, Link, QueueName, Strict, check_held, needs

ClaimIdIn = Annotated[str, Field(max_length=200, description="The `id` of a claimed task.")]
_SECONDS_MIN, _SECONDS_MAX = LEASE_MS_MIN / 1000, LEASE_MS_MAX / 1000
#: How many seconds a claim may wait for tasks.
WAIT_S_MAX = 60.0


class ClaimIn(Strict):
    """Claim tasks of the first of `queues` that has any, and of one of `kinds` (null: of any kind).

    The request waits up to `wait` seconds for the first task. All tasks that it gets are under one
    lease, which counts for `lease` seconds from now on, and from each renewal.
    """

    queues: Annotated[list[QueueName], Field(min_length=1, max_length=20)] = Field(["default"])
    kinds: Annotated[list[QueueName], Field(min_length=1, max_length=100)] | None = None
    count: Annotated[int, Field(ge=1, le=BATCH_MAX)] = 1
    wait: Annotated[float, Field(ge=0, le=WAIT_S_MAX)] = 0.0
    lease: Annotated[float, Field(ge=_SECONDS_MIN, le=_SECONDS_MAX)] = 30.0


class ClaimedOut(BaseModel):
    """The claimed tasks; none if there was nothing to claim."""

    tasks: list[LeasedOut]


class IdsIn(Strict):
    """The ids of claims."""

    ids: Annotated[list[ClaimIdIn], Field(min_length=1, max_length=BATCH_MAX)]


class RenewedOut(BaseModel):
    """Whether each claim stands, in the order of the request."""

    claims: list[RenewalOut]


class LogIn(Strict):
    """The entry `number` of this attempt: 1, 2, 3 and so on. Sending it again changes nothing."""

    id: ClaimIdIn
    number: Annotated[int, Field(ge=1, le=LOGS_PER_ATTEMPT)]
    value: Any


class ResultIn(Strict):
    """The result of a task."""

    id: ClaimIdIn
    value: Any = None


class CompleteIn(Strict):
    """Results, which are committed together where they fit in one transaction."""

    results: Annotated[list[ResultIn], Field(min_length=1, max_length=BATCH_MAX)]


class FailureIn(Strict):
    """Why an attempt failed. `kind` names the sort, as the type of an exception does; with `retry`
    false no further attempt is made."""

    id: ClaimIdIn
    message: Annotated[str, Field(max_length=20_000)]
    kind: Annotated[str, Field(min_length=1, max_length=200)] = "Error"
    retry: bool = True
    traceback: Annotated[str, Field(max_length=200_000)] = ""


class FailIn(Strict):
    """Failed attempts: the claim of each, and why it failed."""

    failures: Annotated[list[FailureIn], Field(min_length=1, max_length=BATCH_MAX)]


class OutcomesOut(BaseModel):
    """Whether each outcome counts, in the order of the request."""

    outcomes: list[ClaimOutcomeOut]


# Answers have the form of the models, but are not validated: batches are long, and validation would
# take most of the time of an answer.


router = APIRouter(
    prefix="/leases", tags=["leases"], dependencies=[needs("work")], responses=documented(409, 422)
)
#: The status of each refusal, and what to do about it. The gravest comes first.
_TODO = {
    "lapsed": (409, "Drop the result: the task runs again, or has run. Renew more often."),
    "ended": (409, "Drop the result: the outcome of the task is fixed."),
    "removed": (409, "Drop the result: its plan is gone."),
    "invalid": (422, "Change what the detail names, or let the task fail."),
    "full": (503, "Send it again in a moment: the claim stands."),
}


@router.post("/claim", response_model=ClaimedOut)
async def claim(request: Request, caller: CallerOf, wanted: ClaimIn) -> JSONResponse:
    """Claim tasks of a kind under a lease. Tasks without a kind cannot be claimed here."""
    holder = "" if caller is None else caller.holder
    found = await _calls(request).claim(wanted, holder, request.is_disconnected)
    return JSONResponse({"tasks": [vars(each) for each in found]})


@router.post("/renew", response_model=RenewedOut)
async def renew(request: Request, caller: CallerOf, wanted: IdsIn) -> JSONResponse:
    """Let the leases of these claims count from now on, and say which claims still stand."""
    check_held(caller, wanted.ids)
    renewed = await _calls(request).renewals.renew(wanted.ids)
    return JSONResponse({"claims": [vars(each) for each in renewed]})


@router.post("/log", response_model=OutcomesOut)
def log(request: Request, caller: CallerOf, wanted: LogIn) -> JSONResponse:
    """Write a log entry of a task, which later attempts find in `logs`."""
    check_held(caller, [wanted.id])
    return _answer([_calls(request).leases().log(wanted.id, wanted.number, wanted.value)])


@router.post("/complete", response_model=OutcomesOut)
def complete(request: Request, caller: CallerOf, wanted: CompleteIn) -> JSONResponse:
    """Commit results. 409 if one of them comes too late; `outcomes` says what became of each."""
    check_held(caller, [each.id for each in wanted.results])
    results = [(each.id, each.value) for each in wanted.results]
    return _answer(_calls(request).leases().complete(results))


@router.post("/fail", response_model=OutcomesOut)
def fail(request: Request, caller: CallerOf, wanted: FailIn) -> JSONResponse:
    """Let attempts fail: the tasks run again, or are dead if no attempts are left."""
    check_held(caller, [each.id for each in wanted.failures])
    failed = [Failed(**each.model_dump()) for each in wanted.failures]
    return _answer(_calls(request).leases().fail(failed))


@router.post("/release", response_model=OutcomesOut)
def release(request: Request, caller: CallerOf, wanted: IdsIn) -> JSONResponse:
    """Give tasks back that were not run. It costs them no attempt."""
    check_held(caller, wanted.ids)
    return _answer(_calls(request).leases().hand_back(wanted.ids))


def _calls(request: Request) -> LeaseCalls:
    calls: LeaseCalls = request.app.state.lease_calls
    return calls


def _answer(outcomes: Sequence[ClaimOutcomeOut]) -> JSONResponse:
    """Raises Problem, with the status of the gravest refusal, if one of them does not count."""
    shown = [vars(each) for each in outcomes]
    refused = [each for each in outcomes if not each.ok]
    if not refused:
        return JSONResponse({"outcomes": shown})
    first = min(refused, key=lambda each: list(_TODO).index(each.refused))
    status, todo = _TODO[first.refused]
    others = f" ({len(refused)} of {len(outcomes)} were refused)" if len(outcomes) > 1 else ""
    raise Problem(status, first.refused, f"{first.why}{others}", todo, outcomes=shown)


# ---- The calls behind the routes.

#: Renewals are sent at least this many seconds apart, together with those that came meanwhile. They
#: cost ten requests a second, however many programs renew.
APART_S = 0.2
#: How often a waiting claim asks whether its client is still there.
PRESENT_S = 2.0
IsGone = Callable[[], Awaitable[bool]]


class Renewals:
    """Sends the renewals of all programs together. Used by one event loop."""

    def __init__(self, send: Callable[[Sequence[str]], Awaitable[list[RenewalOut]]]) -> None:
        """`send` renews at most BATCH_MAX claims."""
        self._send = send
        self._waiting: list[tuple[Sequence[str], asyncio.Future[list[RenewalOut]]]] = []
        self._task: asyncio.Task[None] | None = None
        self._sent_at = float("-inf")

    async def renew(self, ids: Sequence[str]) -> list[RenewalOut]:
        """As `Leases.renew`, at most BATCH_MAX claims."""
        answer: asyncio.Future[list[RenewalOut]] = asyncio.get_running_loop().create_future()
        self._waiting.append((ids, answer))
        if self._task is None:
            self._task = asyncio.create_task(self._send_all())
        return await answer

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(max(0.0, self._sent_at + APART_S - time.monotonic()))
                self._sent_at = time.monotonic()
                await self._send_some()
        finally:
            self._task = None

    async def _send_some(self) -> None:
        # An ID that two requests name is renewed once.
        ids: dict[str, None] = {}
        count = 0
        for wanted, _ in self._waiting:
            more = ids | dict.fromkeys(wanted)
            if ids and len(more) > BATCH_MAX:
                break
            ids, count = more, count + 1
        some, self._waiting = self._waiting[:count], self._waiting[count:]
        # An answer that is done was cancelled: its client is gone.
        try:
            found = {each.id: each for each in await self._send(list(ids))}
        except Exception as error:
            for _, answer in some:
                if not answer.done():
                    answer.set_exception(error)
            return
        for wanted, answer in some:
            if not answer.done():
                answer.set_result([found[text] for text in wanted])


class LeaseCalls:
    """The leases of the client of a service, from the first request for them on."""

    def __init__(self, link: Link) -> None:
        self._link, self._lock = link, threading.Lock()
        self._leases: Leases | None = None
        self._client: Client | None = None
        self._waiting: set[asyncio.Event] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_over = False
        self.renewals = Renewals(self._renew)

    def leases(self) -> Leases:
        """The leases of the current client. Raises the errors of making a client."""
        with self._lock:
            client = self._link.renewed()
            if self._leases is None or self._client is not client:
                client.prepare()
                self._client, self._leases = client, Leases(client)
                self._leases.candidates.listeners.append(self._changed)
            return self._leases

    async def claim(self, wanted: ClaimIn, holder: str, is_gone: IsGone) -> list[LeasedOut]:
        """As `Leases.claim`, but wait for tasks. Nothing is claimed for a client that is gone."""
        self._loop = asyncio.get_running_loop()
        leases, deadline = await run_in_threadpool(self.leases), time.monotonic() + wanted.wait
        changed = asyncio.Event()
        self._waiting.add(changed)
        try:
            while True:
                changed.clear()
                found = await run_in_threadpool(
                    leases.claim, wanted.queues, wanted.kinds, wanted.count, wanted.lease, holder
                )
                left = deadline - time.monotonic()
                if found or left <= 0 or self._is_over:
                    return found
                most = REFRESH_S if leases.candidates.must_look_again else left
                if not await self._wait(changed, min(left, most), is_gone):
                    return []
        finally:
            self._waiting.discard(changed)

    async def _wait(self, changed: asyncio.Event, seconds: float, is_gone: IsGone) -> bool:
        """Wait for a change, at most this long. Returns whether the client still waits."""
        until = time.monotonic() + seconds
        while not self._is_over:
            left = until - time.monotonic()
            if await is_gone():
                return False
            if changed.is_set() or left <= 0:
                return True
            try:
                await asyncio.wait_for(changed.wait(), min(left, PRESENT_S))
            except asyncio.TimeoutError:
                continue
        return False

    async def _renew(self, ids: Sequence[str]) -> list[RenewalOut]:
        return await run_in_threadpool(lambda: self.leases().renew(ids))

    def _changed(self) -> None:
        """Called on a thread of kazoo."""
        loop = self._loop
        if loop is not None and self._waiting and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for each in self._waiting:
            each.set()

    def end(self) -> None:
        """End all waiting: the service stops."""
        self._is_over = True
        self._wake()

    async def close(self) -> None:
        self.end()
        with self._lock:
            leases, self._leases = self._leases, None
        if leases is not None:
            await run_in_threadpool(leases.close)
