"""The half of a worker that delivers: groups ended tasks into commits, publishes, ends plans."""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from ..errors import (
    UNREACHABLE,
    KeeperError,
    PayloadTooLarge,
    PayloadUndecodable,
    PlanError,
    ResultNotKept,
    ServerFull,
    ZkplanError,
)
from ..protocol import control
from ..protocol.commit import Committed, Part, commit
from ..protocol.publish import Published, publish
from ..protocol.shared import (
    GROUP_BYTES_MAX,
    GROUP_OPS_MAX,
    NO_DRIVE,
    Dependent,
    Drive,
    Registration,
)
from ..protocol.wide import deliver_wide
from ..requests import Step
from . import endings, losses

if TYPE_CHECKING:
    from .engine import Engine

#: Transactions that commit at once; more only make each of them smaller.
COMMITS_MAX = 2
#: While a commit is under way and tasks are about to end, this many are worth another one.
GROUP_WORTH = 8


class Delivery:
    """Parts that wait for their commit, and what commits leave to be done."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._parts: deque[Part] = deque()
        self._committing = 0
        #: The results of parts that wait or are being committed, in bytes.
        self.waiting_bytes = 0
        self._old_wakes: list[str] = []
        #: Plans whose end is being looked for; True: a task ended meanwhile, so look once more.
        self._finishing: dict[str, bool] = {}

    @property
    def waiting(self) -> int:
        return len(self._parts)

    def add(self, part: Part) -> None:
        self._parts.append(part)
        self.waiting_bytes += len(part.outcome)

    def lost_desk(self) -> None:
        """A new life with a new desk: the wakes left on the old one are a clearer's."""
        self._old_wakes.clear()

    def advance(self) -> None:
        """Start what commits may start now."""
        engine = self._engine
        while self._parts and self._committing < COMMITS_MAX and engine.me is not None:
            if self._committing and len(self._parts) < GROUP_WORTH and engine.claims.held:
                return  # more is about to end: let it share the transaction
            if not self._parts[0].fits:
                self._deliver_wide(self._parts.popleft())
                continue
            parts = self._group()
            self._committing += 1
            wakes, self._old_wakes = self._old_wakes, []
            single = sum(edge.k == 1 for part in parts for _, edge in part.loaded.edges)
            drive = engine.claims.promise(engine.claims.drive(parts, single, len(parts)))
            committed = partial(self._committed, engine.me, drive)
            engine.go(commit(engine.me, parts, wakes, drive), committed)
            engine.ahead.committing(parts)

    def _group(self) -> list[Part]:
        parts: list[Part] = []
        ops = size = 0
        while self._parts and self._parts[0].fits:
            part = self._parts[0]
            ops, size = ops + part.op_count, size + part.size
            if parts and (ops > GROUP_OPS_MAX or size > GROUP_BYTES_MAX):
                break
            parts.append(self._parts.popleft())
        return parts

    def _committed(self, me: Registration, drive: Drive, report: Committed) -> None:
        engine = self._engine
        self._committing -= 1
        engine.claims.redeem(drive)
        if report.worker_gone:
            engine.lost_registration(me)
        self._old_wakes += report.old_wakes
        ready, unread, on_the_way = engine.ahead.take(report)
        # Long tasks that are inherited take slots that the publication must not claim for. Short
        # ones are claimed ahead anyhow: to count them made `map-reduce` 4 % slower.
        inherited = len(ready) + len(unread) if engine.claims.are_long else 0
        engine.claims.expect(on_the_way + inherited)
        self._settle(report)
        if report.full:
            spare = len(report.done) - len(report.inherited)
            drive = engine.claims.drive(report.done, len(report.full), spare)
            self._publish(report.full, report.wake, engine.claims.promise(drive))
        elif report.wake:
            self._old_wakes.append(report.wake)
        # A commit sent twice is fenced by its own first copy, which may have ended the last task.
        ended = (*report.done, *report.fenced)
        for plan_path in {part.loaded.claim.plan_path for part in ended if not part.loaded.edges}:
            self.finish(plan_path)
        engine.claims.expect(-inherited)
        engine.claims.take_on(unread)
        # Last, because the interpreter runs them only once this thread waits again.
        engine.claims.start(ready)

    def _settle(self, report: Committed) -> None:
        engine = self._engine
        engine.statistics.committed += len(report.done)
        engine.statistics.refusals += report.refusals
        for part in report.fenced:
            losses.lost(engine, part.loaded.claim, losses.RESULT)
        failed = [part for part, _ in report.poison]
        refused = [part for part, _ in report.no_room]
        for part in (*report.done, *report.fenced, *report.stale, *failed, *refused):
            self.waiting_bytes -= len(part.outcome)
        for part in (*report.done, *report.fenced):
            engine.claims.end_job(part.loaded.claim)
        for part in report.stale:
            endings.reload(engine, part)
        for part, error in report.poison:
            endings.poisoned(engine, part, error)
        for part, full in report.no_room:
            engine.no_room.put(part, full)

    def _publish(self, full: list[Dependent], wake: str, drive: Drive) -> None:
        engine = self._engine
        if engine.me is None:
            engine.claims.redeem(drive)
            return  # the wake on the old desk says what is owed; a clearer settles it

        me = engine.me

        def published(done: Published | None) -> None:
            engine.claims.redeem(drive)
            if done is None:
                self._publish_later(me, full, wake)
                return
            engine.statistics.refusals += done.refusals
            engine.claims.take_on(done.claims, done.read)

        engine.go_contained(publish(me, full, wake, drive), published, _what(full), instead=None)

    def _publish_later(self, me: Registration, full: list[Dependent], wake: str) -> None:
        """Until it is done: nobody else publishes for a worker that lives."""

        def published(done: Published) -> None:
            self._engine.statistics.refusals += done.refusals

        make = partial(publish, me, full, wake, NO_DRIVE)
        self._engine.again.go(make, published, _what(full))

    def _deliver_wide(self, part: Part) -> None:
        engine = self._engine
        me = engine.me
        assert me is not None
        self._committing += 1

        def attempt() -> Step[bool | ZkplanError]:
            try:
                most = len(part.loaded.edges)
                step = deliver_wide(
                    *(me, part, lambda: engine.claims.drive([part], most, 0)),
                    *(engine.claims.take_on, partial(self._publish_later, me)),
                )
                return (yield from step)
            except (ResultNotKept, PlanError, PayloadTooLarge) as error:
                return error  # nothing was written: a task that it adds cannot be added
            except UNREACHABLE:
                raise
            except (KeeperError, PayloadUndecodable) as error:
                # An edge leads nowhere, or may not be read: this task fails, this worker does not.
                return error

        def delivered(ended: bool | ZkplanError) -> None:
            self._committing -= 1
            if isinstance(ended, ServerFull):
                self._settle(Committed(no_room=[(part, ended)]))
                return
            if isinstance(ended, ZkplanError):
                self._settle(Committed(poison=[(part, ended)]))
                return
            self._settle(Committed(done=[part]) if ended else Committed(fenced=[part]))
            # Fenced too: it may have been by its own last transaction, whose answer was lost.
            self.finish(part.loaded.claim.plan_path)

        engine.go(attempt(), delivered)

    def finish(self, plan_path: str) -> None:
        """A task without dependents is done, or one whose dependents may have ended before it.

        That was the plan's last task, perhaps.
        """
        if plan_path in self._finishing:
            self._finishing[plan_path] = True
            return
        self._finishing[plan_path] = False

        def looked(done: bool) -> None:
            if self._finishing.pop(plan_path) and not done:
                self.finish(plan_path)

        step = control.finish(plan_path, time.time())
        self._engine.go_contained(step, looked, f"{plan_path} does not end", instead=False)


def _what(full: list[Dependent]) -> str:
    return f"publishing {len(full)} tasks of plan {full[0].plan}"
