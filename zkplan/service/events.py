"""Server-sent events: one watcher looks for changes, and a stream sends them to each listener.

A plan is looked at once for all its listeners. A listener that is too slow is cut off.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from ..basics.log import get_logger
from ..errors import ZkplanError
from ..views.overview import Observer, Overview
from ..views.plan_changes import Changes, PlanSeen
from .answers import Problem, documented, problem_of
from .parameters import Link, PlanOf, needs

#: The most events that wait for one listener.
WAITING_MAX = 64
#: The most listeners, in all and of one token.
LISTENERS_MAX, LISTENERS_OF_TOKEN = 2000, 200
#: The most tasks in one event.
TASKS_MAX = 2000
#: After each look the watcher rests for this many times the processor time that the look took.
#: With more rest, events of a plan of 1 000 tasks would be more than a second late.
REST = 10
#: The shortest pause between two looks.
PAUSE_MIN_S = 0.1
#: An overview is used again for this many seconds.
FRESH_S = 1.0
#: The key of the listeners to the whole root.
ROOT = ""
logger = get_logger("zkplan.service")


class Event(NamedTuple):
    """The name of an event, and its facts for JSON."""

    name: str
    facts: dict[str, Any]


class Listener:
    """Listens to one plan, or to the root. Its events end with None."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self.is_cut = False

    def send(self, event: Event) -> None:
        """Queue an event. Cuts the listener off if too many wait."""
        if self.is_cut:
            return
        if self._events.qsize() >= WAITING_MAX:
            self.is_cut = True
            while not self._events.empty():
                self._events.get_nowait()
            self._events.put_nowait(Event("cut", {"detail": "too slow: read again, and reconnect"}))
            self.end()
        else:
            self._events.put_nowait(event)

    def end(self) -> None:
        """End the events."""
        self.is_cut = True
        self._events.put_nowait(None)

    async def next(self, timeout: float) -> Event | None:
        """The next event, None at the end. Raises asyncio.TimeoutError."""
        return await asyncio.wait_for(self._events.get(), timeout)


class Watcher:
    """Looks at most `looks` times a second. It runs in the loop of the service; only the looks
    themselves, which block, run in threads."""

    def __init__(self, link: Link, looks: float) -> None:
        self._link, self._pause_s = link, 1 / looks
        self._listeners: dict[str, set[Listener]] = {}
        #: How many listeners each caller has.
        self._of_caller: Counter[str] = Counter()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        #: The last state of each plan, and of the root, that was sent.
        self._sent: dict[str, Any] = {}
        self._looks = _Looks(link)
        self._overview: tuple[float, Overview] | None = None
        #: Set when a plan, or the root, gets its first listener.
        self._is_new = asyncio.Event()
        self._overlooking = asyncio.Lock()

    @property
    def listeners(self) -> int:
        """The number of listeners."""
        return sum(map(len, self._listeners.values()))

    @asynccontextmanager
    async def listening(self, key: str, caller: str) -> AsyncIterator[Listener]:
        """Listen to a plan, by its number, or to ROOT. Raises Problem if too many listen."""
        if self._of_caller[caller] >= LISTENERS_OF_TOKEN:
            raise Problem(
                429,
                "too-many-streams",
                f"this token has {LISTENERS_OF_TOKEN} open streams of events, which is the maximum",
                "Close some: one stream of /v1/events covers all plans.",
                headers={"Retry-After": "10"},
            )
        if self._is_closed or self.listeners >= LISTENERS_MAX:
            raise Problem(
                503,
                "too-many-listeners",
                "the service has the maximum number of listeners",
                "Try again, or use another service of the same root.",
                headers={"Retry-After": "10"},
            )
        listener = Listener()
        if key not in self._listeners:
            self._is_new.set()
        self._listeners.setdefault(key, set()).add(listener)
        self._of_caller[caller] += 1
        if (sent := self._sent.get(key)) is not None:
            whole = (
                Event("root", _of_root(sent, None)) if key == ROOT else _of_plan(key, sent, None)
            )
            listener.send(whole)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            yield listener
        finally:
            self._leave(key, listener)
            self._of_caller[caller] -= 1
            if not self._of_caller[caller]:
                del self._of_caller[caller]

    def _leave(self, key: str, listener: Listener) -> None:
        found = self._listeners.get(key, set())
        found.discard(listener)
        if not found:
            self._listeners.pop(key, None)
            self._sent.pop(key, None)

    async def overview(self) -> Overview:
        """An overview of the root, read at most once in FRESH_S seconds."""
        async with self._overlooking:
            now = time.monotonic()
            if self._overview is None or now - self._overview[0] > FRESH_S:
                seen = await run_in_threadpool(self._looks.overview)
                self._overview = time.monotonic(), seen
            return self._overview[1]

    def end(self) -> None:
        """End all streams: the service stops."""
        self._is_closed = True
        for listener in [each for found in self._listeners.values() for each in found]:
            listener.end()

    async def close(self) -> None:
        """Stop looking."""
        self.end()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while self._listeners and not self._is_closed:
            self._looks.took_s = 0.0
            self._is_new.clear()
            try:
                await self._look()
            except ZkplanError as error:
                self._link.note(error)
                self._send_all(Event("problem", problem_of(error).body()))
                self._sent.clear()  # the next events are whole
            except Exception:
                # Nothing awaits this task, and it must not end while there are listeners.
                logger.exception("an unexpected error in the watcher")
            await self._rest(max(self._pause_s, REST * self._looks.took_s))

    async def _rest(self, rest_s: float) -> None:
        """Wait for the next look, but not long for a new listener: a person waits for the page."""
        await asyncio.sleep(PAUSE_MIN_S)
        try:
            await asyncio.wait_for(self._is_new.wait(), rest_s - PAUSE_MIN_S)
        except asyncio.TimeoutError:
            pass  # it is time

    async def _look(self) -> None:
        plans = [key for key in self._listeners if key != ROOT]
        if plans:
            for plan, seen in (await run_in_threadpool(self._looks.plans, plans)).items():
                self._send_plan(plan, seen)
        if ROOT in self._listeners:
            seen_root = await self.overview()
            before: Overview | None = self._sent.get(ROOT)
            facts = _of_root(seen_root, before)
            is_same = before is not None and _sums(before) == _sums(seen_root)
            if not is_same or facts["plans"] or facts["ended"]:
                self._send(ROOT, Event("root", facts))
            if ROOT in self._listeners:
                self._sent[ROOT] = seen_root

    def _send_plan(self, plan: str, seen: PlanSeen | None) -> None:
        if seen is None:
            self._send(plan, Event("gone", {"number": int(plan)}))
            for listener in list(self._listeners.get(plan, ())):
                listener.end()
            return
        before: PlanSeen | None = self._sent.get(plan)
        if before is not seen:
            if before != seen:
                self._send(plan, _of_plan(plan, seen, before))
            if plan in self._listeners:
                self._sent[plan] = seen

    def _send(self, key: str, event: Event) -> None:
        for listener in self._listeners.get(key, ()):
            listener.send(event)

    def _send_all(self, event: Event) -> None:
        for key in self._listeners:
            self._send(key, event)


class _Looks:
    """Reads plans and the root, in a thread, with the current client."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._made_for: Any = None
        #: The processor time of the looks.
        self.took_s = 0.0

    def _renew(self) -> None:
        client = self._link.renewed()
        if client is not self._made_for:
            self._made_for = client
            self._changes, self._observer = Changes(client), Observer(client)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        self._renew()
        begin = time.thread_time()
        try:
            yield
        finally:
            self.took_s += time.thread_time() - begin

    def plans(self, plans: list[str]) -> dict[str, PlanSeen | None]:
        with self._timed():
            return self._changes.look(plans)

    def overview(self) -> Overview:
        with self._timed():
            return self._observer.look(names=0)


def _of_plan(plan: str, seen: PlanSeen, before: PlanSeen | None) -> Event:
    """The numbers of a plan, and its tasks that have changed; `whole` means that all may have."""
    changed = {} if before is None else seen.changed_since(before)
    some = sorted(changed.items())[:TASKS_MAX]
    status = seen.status
    names = ("state", "added", "finished", "skipped", "dead", "outcomes", "weight", "priority")
    facts: dict[str, Any] = {name: getattr(status, name) for name in names}
    return Event(
        "plan",
        {
            "number": int(plan),
            **facts,
            "counts": seen.counts,
            "whole": before is None,
            "tasks": [{"number": int(number), "state": state} for number, state in some],
            "more": len(changed) - len(some),
        },
    )


_OF_STATUS = ("name", "state", "tasks", "added", "finished", "runnable", "dead")


def _of_root(seen: Overview, before: Overview | None) -> dict[str, Any]:
    """The active plans that have changed, those that are no longer active, and the sums."""
    old = {each.number: each for each in before.plans} if before is not None else {}
    new = {each.number: each for each in seen.plans}
    changed = [
        each
        for number, each in new.items()
        if number not in old or old[number]._replace(left=each.left) != each
    ]
    return {
        "whole": before is None,
        "plans": [
            {"number": int(each.number)}
            | {name: getattr(each.status, name) for name in _OF_STATUS}
            | {name: getattr(each, name) for name in ("running", "ahead", "rate", "left")}
            for each in changed
        ],
        "ended": [int(number) for number in old.keys() - new.keys()],
        **_sums(seen),
        "rate": seen.rate,
    }


def _sums(seen: Overview) -> dict[str, int]:
    return {
        "workers": len(seen.workers),
        "slots": sum(each.record.slots for each in seen.workers),
        "held": seen.held,
        "others": seen.others,
        "failed": seen.failed,
        "failed_dead": seen.failed_dead,
    }


router = APIRouter(tags=["events"], responses=documented(404, 422))
#: The most seconds between two events: a beat shows that the service lives.
BEAT_S = 10.0
_TEXT = """Server-sent events. The first event of a plan is whole, and so is the one after a
`problem`. `plan`: numbers of the plan, `counts` of its tasks by state, and the `tasks` whose state
has changed (at most 2 000; `more` says how many are left out; none if only the history has
something new, such as output of a task). `root`: active plans that have changed, those that have
`ended`, and sums. `gone`: the plan was removed. `problem`: ZooKeeper does not answer; the stream
goes on. `beat`: nothing has changed for ten seconds. `cut`: this listener is too slow, and the
stream ends.""".replace("\n", " ")


_STREAM: dict[str, Any] = {
    "dependencies": [needs("read")],
    "response_class": Response,
    "responses": {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    "description": _TEXT,
}


async def _listen_to_plan(request: Request, plan: PlanOf) -> AsyncIterator[Listener]:
    async with request.app.state.watcher.listening(plan.number, request.state.key) as listener:
        yield listener


async def _listen_to_root(request: Request) -> AsyncIterator[Listener]:
    async with request.app.state.watcher.listening(ROOT, request.state.key) as listener:
        yield listener


@router.get("/plans/{plan}/events", **_STREAM)
async def plan_events(listener: Annotated[Listener, Depends(_listen_to_plan)]) -> Response:
    return _stream(listener)


@router.get("/events", **_STREAM)
async def root_events(listener: Annotated[Listener, Depends(_listen_to_root)]) -> Response:
    return _stream(listener)


def _stream(listener: Listener) -> Response:
    """Send the events of a listener until it goes, is cut off, or the service stops. Sending waits
    while the buffers to the listener are full, until `Patience` ends the connection."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_frames(listener), headers=headers, media_type="text/event-stream")


async def _frames(listener: Listener) -> AsyncIterator[str]:
    for number in count(1):
        try:
            event = await listener.next(BEAT_S)
        except asyncio.TimeoutError:
            event = Event("beat", {"when": time.time()})
        if event is None:
            return
        data = json.dumps(event.facts, separators=(",", ":"))
        yield f"id: {number}\nevent: {event.name}\ndata: {data}\n\n"
