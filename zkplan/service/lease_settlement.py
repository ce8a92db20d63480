"""Settle claims under a lease: commit, fail or hand back, as the service's own registration."""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

from ..basics import __version__
from ..errors import ClientClosed, ServerFull, ZkplanError, ZooKeeperUnavailable
from ..protocol.core import plan_life
from ..protocol.core.commit import Committed, commit
from ..protocol.core.commit_part import Part, first_group
from ..protocol.core.end_claims import hand_back
from ..protocol.core.load import load
from ..protocol.core.publish import publish
from ..protocol.core.wide_delivery import WorkerGone, deliver_wide
from ..protocol.core.workers import WorkerRecord, register, unregister
from ..protocol.layout import SERVICE, Paths
from ..protocol.requests import Delete, Fact, Multi, Step
from ..protocol.transactions import NO_ALLOWANCE, Claim, Dependent, Registration
from ..runtime.attempt_end import End, HandBack, settle, settle_failure
from ..runtime.attempts import describe, sealed
from ..runtime.job import Ended, Job
from ..transport import Transport
from ..transport.server_clock import ServerClock
from ..values.codec import Codec
from ..values.connection import Connection
from .lease_records import ClaimOutcomeOut, accepted, refused

#: A session under which this many registrations fail cannot register.
TRIES_MAX = 20
#: How often a part is loaded again because its task has changed.
RELOADS_MAX = 20


def id_of(claim: Claim) -> str:
    """The ID of a claim: LEASE/NAME."""
    return "/".join(claim.path.rsplit("/", 2)[1:])


class ServiceRegistration:
    """Registers the service when that is needed, and again after a lost session. Thread-safe."""

    def __init__(self, transport: Transport, paths: Paths) -> None:
        self._transport, self._paths = transport, paths
        self.clock = ServerClock()
        self._lock = threading.Lock()
        self._me: Registration | None = None
        host = socket.gethostname().split(".")[0][:20]
        self._name = f"{SERVICE}{host}-{os.getpid()}"

    def me(self) -> Registration:
        """Register if needed. Raises ZooKeeperUnavailable, TransactionRejected."""
        with self._lock:
            for _ in range(TRIES_MAX):
                if self._me is not None:
                    return self._me
                self._me = self._register(f"{self._name}-{os.urandom(4).hex()}")
        raise ZooKeeperUnavailable("this service cannot register: its session ends again and again")

    def _register(self, name: str) -> Registration | None:
        record = WorkerRecord(
            name, socket.gethostname(), os.getpid(), 0, time.time(), version=__version__
        )
        uids = map("{:x}".format, itertools.count())  # several threads use it
        before = time.monotonic()
        me = self._transport.run(register(self._paths, name, record.to_bytes(), uids))
        if me is not None:
            self.clock.registered(me.worker_path, before, time.monotonic())
        return me

    def measured(self) -> ServerClock:
        """The server's clock, from the time that it wrote on the registration."""
        if not self.clock.is_known:
            self.me()
            self._transport.run(self.clock.measure())
        return self.clock

    def lost(self, me: Registration) -> None:
        """Forget a registration that is gone: whoever clears its claims node does what it owed."""
        with self._lock:
            if self._me is me:
                self._me = None

    def leave(self) -> None:
        with self._lock:
            me, self._me = self._me, None
        if me is not None:
            # If ZooKeeper is away, the session ends, and others clear the claims node.
            with suppress(ZooKeeperUnavailable, ClientClosed):
                self._transport.run(unregister(me))


class Settler:
    """Settles the claims of one service. Thread-safe."""

    def __init__(
        self, connection: Connection, codec: Codec, registration: ServiceRegistration
    ) -> None:
        self._sweeper, self._codec, self._registration = connection.sweeper, codec, registration
        self._run, self._paths = connection.transport.run, connection.paths
        self._lock = threading.Lock()
        #: Pending records that named no complete task; the next commit deletes them.
        self._old_pending: list[str] = []

    def settle(self, ended: Iterable[Ended], emptied: Sequence[str]) -> list[ClaimOutcomeOut]:
        """Settle the claims of these attempts, each once. The leases in `emptied` have no other
        claims. A claim that did not stand is `lapsed`, without a reason."""
        wanted = []
        for each in ended:
            measure(each)
            wanted.append((each.job, settle(each, self._codec, self._paths)))
        return self._carry_out(wanted, emptied)

    def _carry_out(
        self, wanted: Iterable[tuple[Job, Part | End | HandBack | None]], emptied: Sequence[str]
    ) -> list[ClaimOutcomeOut]:
        done: list[ClaimOutcomeOut] = []
        parts: list[tuple[Part, Job]] = []
        for job, each in wanted:
            match each:
                case Part():
                    parts.append((each, job))
                case End(_, make):
                    done.append(_outcome(job, self._run(make())))
                case HandBack():
                    done.append(_outcome(job, self._run(hand_back([job.claim]))))
                case None:
                    done.append(_outcome(job, False))
        if parts:
            done += self._commit_all(parts, [self._paths.claims_of(lease) for lease in emptied])
        else:
            self.drop(emptied)
        return done

    def _commit_all(
        self, waiting: list[tuple[Part, Job]], leases: list[str]
    ) -> list[ClaimOutcomeOut]:
        done: list[ClaimOutcomeOut] = []
        while waiting:
            count = first_group(part for part, _ in waiting)
            group, waiting = waiting[:count], waiting[count:]
            if group[0][0].fits:
                # A lease is deleted with its last claims; if others stand, its delete is left out.
                again = self._commit(group, [] if waiting else leases, done)
            else:
                again = self._deliver_wide(*group[0], done)
            waiting = again + waiting
        return done

    def _commit(
        self, group: list[tuple[Part, Job]], leases: list[str], done: list[ClaimOutcomeOut]
    ) -> list[tuple[Part, Job]]:
        """Returns the parts that are to be committed again."""
        me, jobs = self._registration.me(), {id(part): job for part, job in group}
        with self._lock:
            old_pending, self._old_pending = self._old_pending, []
        # Pending records of an earlier registration are deleted too, or gone with its claims node.
        parts = [part for part, _ in group]
        report: Committed = self._run(commit(me, parts, [*old_pending, *leases], NO_ALLOWANCE))
        with self._lock:
            self._old_pending += [path for path in report.old_pending if path not in leases]
            if report.pending and not report.complete:
                self._old_pending.append(report.pending)
        if report.worker_gone:
            self._registration.lost(me)
        if report.complete:
            self.publish(me, report.complete, report.pending)
        done += [_outcome(jobs[id(part)], True) for part in report.done]
        done += [_outcome(jobs[id(part)], False) for part in report.fenced]
        done += [_no_room(jobs[id(part)], error) for part, error in report.no_room]
        for part, error in report.poison:
            done += self._fail(part, jobs[id(part)], error)
        self.finish([*report.done, *report.fenced])
        return self._reloaded([(part, jobs[id(part)]) for part in report.stale], done)

    def _reloaded(
        self, stale: list[tuple[Part, Job]], done: list[ClaimOutcomeOut]
    ) -> list[tuple[Part, Job]]:
        """The parts that have changed since they were loaded, as they are now."""
        again = []
        found = self._run(load([part.loaded.claim for part, _ in stale])) if stale else []
        standing = {item.claim.path: item for item in found}
        for part, job in stale:
            item = standing.get(part.loaded.claim.path)
            part.reloads += 1
            if item is None:
                done.append(_outcome(job, False))
            elif part.reloads > RELOADS_MAX:
                why = f"its commit is refused again and again, the last time by {part.refused_by}"
                done += self._fail(part, job, RuntimeError(why))
            else:
                job.loaded = part.loaded = item
                again.append((part, job))
        return again

    def _deliver_wide(
        self, part: Part, job: Job, done: list[ClaimOutcomeOut]
    ) -> list[tuple[Part, Job]]:
        me = self._registration.me()
        owed = []
        step = deliver_wide(
            me,
            part,
            lambda: NO_ALLOWANCE,
            lambda claims: None,
            lambda full, pending: owed.append((full, pending)),
            partial(sealed, job, self._codec),
        )
        try:
            ended = self._run(step)
        except WorkerGone:
            # Whoever has cleared the claims node has published what the registration owed.
            self._registration.lost(me)
            return [(part, job)]
        except ServerFull as error:
            done.append(_no_room(job, error))
        except ZkplanError as error:
            done += self._fail(part, job, error)
        else:
            done.append(_outcome(job, ended))
            self.finish([part])
        for full, pending in owed:
            self.publish(me, full, pending)
        return []

    def _fail(self, part: Part, job: Job, error: Exception) -> list[ClaimOutcomeOut]:
        """ZooKeeper refuses this part for a reason of its own: the task fails, as in a worker."""
        failure = describe(error, job, self._codec)
        final = bool(part.dead)
        settled = settle_failure(
            job, failure, self._codec, self._paths, final=final, deliverable=False
        )
        why = str(error)
        return [
            each if each.refused == "lapsed" else refused(each.id, "invalid", why)
            for each in self._carry_out([(job, settled)], ())
        ]

    def publish(self, me: Registration, full: Sequence[Dependent], pending: str) -> None:
        """Publish the tasks whose last argument a commit has delivered."""
        self._run(publish(me, list(full), pending, NO_ALLOWANCE))

    def drop(self, leases: Sequence[str]) -> None:
        """Delete leases that have no claims left."""
        for lease in leases:
            self._run(_delete(self._paths.claims_of(lease)))

    def finish(self, parts: Sequence[Part]) -> None:
        """End the plans of these parts that have no task left."""
        for path in {each.loaded.claim.plan_path for each in parts if each.may_end_plan}:
            if self._run(plan_life.finish(path, time.time())):
                self._sweeper.plan_is_done(path)

    def hand_back(self, claims: Sequence[Claim]) -> None:
        """Give claims back: no attempt is used up."""
        if claims:
            self._run(hand_back(claims))


def _outcome(job: Job, stood: bool | int) -> ClaimOutcomeOut:
    return accepted(id_of(job.claim)) if stood else refused(id_of(job.claim), "lapsed", "")


def _no_room(job: Job, error: Exception) -> ClaimOutcomeOut:
    return refused(id_of(job.claim), "full", str(error))


def measure(ended: Ended) -> None:
    """Measure an attempt that has just ended, for the history of its plan."""
    if ended.job.started:
        now = time.monotonic()
        ended.fact = Fact(ran_ms=round(1000 * (now - ended.job.started)), ended=now)


def _delete(path: str) -> Step[None]:
    """Delete a lease. ZooKeeper refuses it while claims stand under it."""
    yield Multi([Delete(path)])
