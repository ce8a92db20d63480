"""The half of a worker that delivers: groups ended tasks into commits, publishes, ends plans."""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from ..errors import (
    UNREACHABLE,
    PayloadTooLarge,
    PayloadUndecodable,
    PlanError,
    ResultNotKept,
    ServerFull,
    ZkplanError,
    ZooKeeperError,
)
from ..protocol import control
from ..protocol.commit import Committed, Part, commit
from ..protocol.publish import Published, publish
from ..protocol.requests import Step
from ..protocol.shared import (
    GROUP_BYTES_MAX,
    GROUP_OPS_MAX,
    NO_DRIVE,
    Dependent,
    Drive,
    Registration,
)
from ..protocol.wide_delivery import deliver_wide
from . import losses, settlement

if TYPE_CHECKING:
    from .loop import Loop

#: Transactions that commit at once; more only make each of them smaller.
COMMITS_MAX = 2
#: While a commit is under way and tasks are about to end, this many are worth another one.
GROUP_WORTH = 8


class Committer:
    """Parts that wait for their commit, and what commits leave to be done."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._parts: deque[Part] = deque()
        self._committing = 0
        #: The results of parts that wait or are being committed, in bytes.
        self.waiting_bytes = 0
        self._old_pending: list[str] = []
        #: Plans whose end is being looked for; True: a task ended meanwhile, so look once more.
        self._finishing: dict[str, bool] = {}

    @property
    def waiting(self) -> int:
        return len(self._parts)

    def add(self, part: Part) -> None:
        self._parts.append(part)
        self.waiting_bytes += len(part.outcome)

    def lost_registration(self) -> None:
        """A new life with a new claims node: the pending records left on the old one are a
        clearer's."""
        self._old_pending.clear()

    def advance(self) -> None:
        """Start what commits may start now."""
        loop = self._loop
        while self._parts and self._committing < COMMITS_MAX and loop.me is not None:
            if self._committing and len(self._parts) < GROUP_WORTH and loop.claims.held:
                return  # more is about to end: let it share the transaction
            if not self._parts[0].fits:
                self._deliver_wide(self._parts.popleft())
                continue
            parts = self._group()
            self._committing += 1
            pending_records, self._old_pending = self._old_pending, []
            single = sum(edge.k == 1 for part in parts for _, edge in part.loaded.edges)
            drive = loop.claims.promise(loop.claims.drive(parts, single, len(parts)))
            committed = partial(self._committed, loop.me, drive)
            loop.go(commit(loop.me, parts, pending_records, drive), committed)
            loop.ahead.committing(parts)

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
        loop = self._loop
        self._committing -= 1
        loop.claims.redeem(drive)
        if report.worker_gone:
            loop.lost_registration(me)
        self._old_pending += report.old_pending
        ready, unread, on_the_way = loop.ahead.take(report)
        # Long tasks that are inherited take slots that the publication must not claim for. Short
        # ones are claimed ahead anyhow: to count them made `map-reduce` 4 % slower.
        inherited = len(ready) + len(unread) if loop.claims.are_long else 0
        loop.claims.expect(on_the_way + inherited)
        self._settle(report)
        if report.full:
            spare = len(report.done) - len(report.inherited)
            drive = loop.claims.drive(report.done, len(report.full), spare)
            self._publish(report.full, report.pending, loop.claims.promise(drive))
        elif report.pending:
            self._old_pending.append(report.pending)
        # A commit sent twice is fenced by its own first copy, which may have ended the last task.
        ended = (*report.done, *report.fenced)
        for plan_path in {part.loaded.claim.plan_path for part in ended if not part.loaded.edges}:
            self.finish(plan_path)
        loop.claims.expect(-inherited)
        loop.claims.take_on(unread)
        # Last, because the interpreter runs them only once this thread waits again.
        loop.claims.start(ready)

    def _settle(self, report: Committed) -> None:
        loop = self._loop
        loop.statistics.committed += len(report.done)
        loop.statistics.refusals += report.refusals
        for part in report.fenced:
            losses.lost(loop, part.loaded.claim, losses.RESULT)
        failed = [part for part, _ in report.poison]
        refused = [part for part, _ in report.no_room]
        for part in (*report.done, *report.fenced, *report.stale, *failed, *refused):
            self.waiting_bytes -= len(part.outcome)
        for part in (*report.done, *report.fenced):
            loop.claims.end_job(part.loaded.claim)
        for part in report.stale:
            settlement.reload(loop, part)
        for part, error in report.poison:
            settlement.poisoned(loop, part, error)
        for part, full in report.no_room:
            loop.no_room.put(part, full)

    def _publish(self, full: list[Dependent], pending: str, drive: Drive) -> None:
        loop = self._loop
        if loop.me is None:
            loop.claims.redeem(drive)
            return  # the pending record there says what is owed; whoever clears it publishes that

        me = loop.me

        def published(done: Published | None) -> None:
            loop.claims.redeem(drive)
            if done is None:
                self._publish_later(me, full, pending)
                return
            loop.statistics.refusals += done.refusals
            loop.claims.take_on(done.claims, done.read)

        loop.go_contained(publish(me, full, pending, drive), published, _what(full), instead=None)

    def _publish_later(self, me: Registration, full: list[Dependent], pending: str) -> None:
        """Until it is done: nobody else publishes for a worker that lives."""

        def published(done: Published) -> None:
            self._loop.statistics.refusals += done.refusals

        make = partial(publish, me, full, pending, NO_DRIVE)
        self._loop.again.go(make, published, _what(full))

    def _deliver_wide(self, part: Part) -> None:
        loop = self._loop
        me = loop.me
        assert me is not None
        self._committing += 1

        def attempt() -> Step[bool | ZkplanError]:
            try:
                most = len(part.loaded.edges)
                step = deliver_wide(
                    *(me, part, lambda: loop.claims.drive([part], most, 0)),
                    *(loop.claims.take_on, partial(self._publish_later, me)),
                )
                return (yield from step)
            except (ResultNotKept, PlanError, PayloadTooLarge) as error:
                return error  # nothing was written: a task that it adds cannot be added
            except UNREACHABLE:
                raise
            except (ZooKeeperError, PayloadUndecodable) as error:
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

        loop.go(attempt(), delivered)

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
        self._loop.go_contained(step, looked, f"{plan_path} does not end", instead=False)


def _what(full: list[Dependent]) -> str:
    return f"publishing {len(full)} tasks of plan {full[0].plan}"
