"""Maintain a root in the background, so that tasks also run again where no worker runs.

A service releases leases and the claims of lost workers, makes delayed tasks runnable when they are
due, delivers decisions about tasks under leases, and compacts histories.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from ..basics.log import get_logger
from ..basics.text import count
from ..errors import ZkplanError
from ..protocol.core.claim import NO_PERMITS, claim
from ..protocol.core.end_claims import clear_claims, orphaned_claims
from ..protocol.core.load import load, read_all
from ..protocol.core.plans_and_queues import look, plan_record, promote
from ..protocol.history.compaction import compact
from ..protocol.layout import parse_claim, parse_delayed, parse_entry, queue_in
from ..protocol.records import PlanRecord, queue_from_bytes, taken_from_bytes
from ..protocol.requests import ReadChildren, ReadData, Step
from ..protocol.transactions import Claim, or_error
from ..runtime.job import Ended, Job
from ..runtime.lost_claims import Lapses
from ..runtime.retention import Written
from ..values.connection import Connection
from .lease_claims import Claimer, choose
from .lease_settlement import ServiceRegistration, Settler

#: The most entries of one queue to look at, from the first on, and the most to promote in one step.
LOOKED_AT = PROMOTED_MAX = 200
#: Seconds between two looks while there is something to wait for, and the head start of workers.
PERIOD_S, HEAD_START_S = 1.0, 2.0
#: Seconds between two looks without anything to wait for, since a watch can be lost.
IDLE_S = 60.0
logger = get_logger("zkplan.leases")


class _Found(NamedTuple):
    """The number of decided entries in a queue that can be delivered, and the claims made now."""

    record: PlanRecord
    decided: int
    claims: Sequence[Claim] = ()


class DecisionDelivery:
    """Delivers what operators decide about tasks under leases.

    A decision takes the claim of the task, and leaves the name of the claim on the lease as a mark.
    After several decisions the lease has the last name. That is enough: all claims of a lease are
    of one queue of one plan, and the decided tasks of a queue are settled together.
    """

    def __init__(
        self,
        connection: Connection,
        registration: ServiceRegistration,
        claimer: Claimer,
        settler: Settler,
    ) -> None:
        self._run, self._paths = connection.transport.run, connection.paths
        self._registration, self._claimer, self._settler = registration, claimer, settler
        #: The mark that each lease had when it was read last.
        self._seen: dict[str, str] = {}
        #: The plans and tasks of marks near which some decision is not delivered.
        self._waiting: set[tuple[str, str]] = set()

    def deliver(self, leases: Sequence[str]) -> bool:
        """Read the marks of `leases`, which must be all leases there are. Returns whether a
        decision waits, because its plan is paused or its task needs a permit."""
        self._seen = {lease: mark for lease, mark in self._seen.items() if lease in set(leases)}
        reads = [ReadData(self._paths.claims_of(lease)) for lease in leases]
        for lease, node in zip(leases, self._run(read_all(reads, strict=False)), strict=True):
            mark = taken_from_bytes(node.data) if node is not None and node.data else ""
            if not mark or mark == self._seen.get(lease):
                continue
            self._seen[lease] = mark
            if (taken := parse_claim(mark)) is not None:
                self._waiting.add((taken.plan, taken.task))
        # A lease may lapse, with its mark, before its plan goes on.
        self._waiting = {each for each in self._waiting if not self._deliver(*each)}
        return bool(self._waiting)

    def _deliver(self, plan: str, task: str) -> bool:
        """Settle the decided tasks in the queue of `task`, and hand back the others unused. Returns
        whether no decision there waits."""
        found = self._run(or_error(self._claim(plan, task)))
        if not isinstance(found, _Found):
            logger.warning(
                "a decision about task %s of plan %s is not delivered: %s", task, plan, found
            )
            return True
        ended: list[Ended] = []
        for item in self._run(load(list(found.claims))):
            at_once = self._claimer.ready(Job(item, plan=found.record))
            if isinstance(at_once, Ended):
                ended.append(at_once)
            else:
                self._settler.hand_back([item.claim])
        self._settler.settle(ended, ())
        return len(found.claims) == found.decided

    def _claim(self, plan: str, task: str) -> Step[_Found]:
        """Raises PlanNotFound, OtherFormat, PayloadUndecodable."""
        path = self._paths.plan(plan)
        record = yield from plan_record(path)
        ready = yield ReadData(f"{path}/task-{task}/ready")
        queue = queue_in(queue_from_bytes(ready.data)) if ready is not None else ""
        if not queue:
            return _Found(record, 0)  # a program or a worker has delivered it
        seen = yield from look(path, queues=(queue,))
        entries = [(name, entry) for name in seen.names or () if (entry := parse_entry(name))]
        held = [(name, entry.task) for name, entry in entries if entry.n][:LOOKED_AT]
        results = yield from read_all(
            [ReadData(f"{path}/task-{number}/result") for _, number in held], strict=False
        )
        names = [name for (name, _), node in zip(held, results, strict=True) if node is not None]
        decided, permits = len(names), NO_PERMITS
        if not names or seen.state != "running":
            return _Found(record, decided if seen.state == "paused" else 0)
        if any("~" in name for name in names):
            names, permits = yield from choose(self._paths, plan, names, self._claimer.server_ms)
        me = self._registration.me()
        taken = yield from claim(me, plan, seen.version, names, queue, permits)
        if taken.worker_gone:
            self._registration.lost(me)
        return _Found(record, decided, taken.claims)


class Maintenance:
    """A thread that looks when a watch fires, and each second while there are leases or delays."""

    def __init__(
        self,
        connection: Connection,
        registration: ServiceRegistration,
        decisions: DecisionDelivery,
    ) -> None:
        self._transport, self._paths = connection.transport, connection.paths
        self._registration, self._decisions = registration, decisions
        self._lapses = Lapses(self._paths, registration.clock)
        self._written, self._sweeper = Written(connection.recorder), connection.sweeper
        self._first_seen: dict[str, float] = {}
        self._is_due, self._is_over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._loop, name="zkplan-leases", daemon=True)

    def start(self) -> None:
        self._transport.listen(self._touched)
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._is_due.set()
        self._thread.join()
        self._transport.unlisten(self._touched)

    def _touched(self, path: str | None) -> None:
        paths = self._paths
        if path is None or path in (paths.workers, paths.claims, paths.delayed):
            self._is_due.set()

    def _loop(self) -> None:
        busy = True
        while not self._is_over.is_set():
            self._is_due.wait(PERIOD_S if busy else IDLE_S)
            self._is_due.clear()
            if self._is_over.is_set():
                return
            try:
                busy = self._look()
            except ZkplanError as error:
                logger.warning("leases cannot be maintained now: %s", error)
                busy = True
            # The watches of claims fire often: without a rest, this thread would look all the time.
            self._is_over.wait(PERIOD_S)

    def _look(self) -> bool:
        """Returns whether there is something to wait for."""
        run, paths, now = self._transport.run, self._paths, time.monotonic()
        self._registration.measured()
        seen = run(orphaned_claims(paths, watch=True))
        for lease, done in run(self._lapses.release(seen.leases, lambda lease: not seen.living)):
            if done.released:
                logger.warning(
                    "%s has lapsed: %s runnable again", lease, count(len(done.released), "task")
                )
        # Living workers claim decided tasks, as they claim all others.
        waits = not seen.living and self._decisions.deliver(seen.leases)
        for gone in self._first_seen.keys() - set(seen.vacant):
            del self._first_seen[gone]
        for worker in seen.vacant:
            if now - self._first_seen.setdefault(worker, now) >= HEAD_START_S or not seen.living:
                run(clear_claims(paths, worker))
        are_delayed = run(self._promote(not seen.living))
        if (plan := self._written.take(now)) is not None:
            run(compact(paths.plan(plan), has_store=self._sweeper.has_store))
            self._sweeper.history_is_merged(paths.plan(plan))
        return bool(waits or seen.leases or seen.vacant or are_delayed or self._written)

    def _promote(self, alone: bool) -> Step[bool]:
        """Promote due entries, if workers live after a head start for them. Returns whether there
        are delayed entries."""
        names = (yield ReadChildren(self._paths.delayed, watch=True)) or ()
        late_ms = 0 if alone else 1000 * HEAD_START_S
        now_ms = 1000 * self._registration.clock.now() - late_ms
        found = [(name, later) for name in sorted(names) if (later := parse_delayed(name))]
        due = [each for each in found if each[1].due_ms <= now_ms]
        if due:
            yield from promote(self._paths, due[:PROMOTED_MAX])
        return bool(found)
