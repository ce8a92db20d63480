"""Settle claims that were given out: the commit, and the other ends, of a worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from ..connection import Connection
from ..errors import ServerFull, ZkplanError
from ..protocol import control
from ..protocol.commit import Committed, commit
from ..protocol.ending import hand_back
from ..protocol.load import load
from ..protocol.part import Part, first_group
from ..protocol.publish import publish
from ..protocol.requests import Delete, Fact, Multi, Step
from ..protocol.shared import (
    NO_ALLOWANCE,
    Claim,
    Dependent,
    Registration,
)
from ..protocol.wide_delivery import WorkerGone, deliver_wide
from ..runtime.failures import describe, sealed
from ..runtime.job import Ended, Job
from ..runtime.settlement import End, HandBack, settle, settle_failure
from ..serialization.codec import Codec
from .leased import Refusal
from .registered import Registered

#: How often one part is read again because its task has changed.
RELOADS_MAX = 20


class Settled(NamedTuple):
    """What became of the end of one claim. `lost`: the claim did not stand any more."""

    job: Job
    lost: bool = False
    refused: Refusal = ""
    why: str = ""


class Settling:
    """Settles the claims of one service. Thread-safe."""

    def __init__(self, connection: Connection, codec: Codec, registered: Registered) -> None:
        self._connection, self._codec, self._registered = connection, codec, registered
        self._run, self._paths = connection.transport.run, connection.paths
        self._lock = threading.Lock()
        #: Pending records that named nothing complete; the next commit deletes them.
        self._old_pending: list[str] = []

    def settle(self, ended: Sequence[Ended], emptied: Sequence[str]) -> list[Settled]:
        """Settle the claims of these attempts, each once. `emptied` leases have no other claims."""
        jobs = [each.job for each in ended]
        for each in ended:
            measure(each)
        return self._carry_out(
            [settle(each, self._codec, self._paths) for each in ended], jobs, emptied
        )

    def _carry_out(
        self,
        wanted: Sequence[Part | End | HandBack | None],
        jobs: list[Job],
        emptied: Sequence[str],
    ) -> list[Settled]:
        done: list[Settled] = []
        parts: list[tuple[Part, Job]] = []
        for each, job in zip(wanted, jobs, strict=True):
            match each:
                case Part():
                    parts.append((each, job))
                case End(_, make):
                    done.append(Settled(job, lost=not self._run(make())))
                case HandBack():
                    done.append(Settled(job, lost=not self._run(hand_back([job.claim]))))
                case None:
                    done.append(Settled(job, lost=True))
        if parts:
            done += self._commit_all(parts, [self._paths.claims_of(lease) for lease in emptied])
        else:
            self.drop(emptied)
        return done

    def _commit_all(self, waiting: list[tuple[Part, Job]], leases: list[str]) -> list[Settled]:
        done: list[Settled] = []
        while waiting:
            count = first_group(part for part, _ in waiting)
            group, waiting = waiting[:count], waiting[count:]
            if group[0][0].fits:
                # A lease goes with its last claims; refused, because others stand, it is left out.
                again = self._commit(group, [] if waiting else leases, done)
            else:
                again = self._deliver_wide(*group[0], done)
            waiting = again + waiting
        return done

    def _commit(
        self, group: list[tuple[Part, Job]], leases: list[str], done: list[Settled]
    ) -> list[tuple[Part, Job]]:
        """Returns what is to be committed again."""
        me, jobs = self._registered.me(), {id(part): job for part, job in group}
        with self._lock:
            old_pending, self._old_pending = self._old_pending, []
        # Those of an earlier registration are deleted, too, or gone with its claims node.
        parts = [part for part, _ in group]
        report: Committed = self._run(commit(me, parts, [*old_pending, *leases], NO_ALLOWANCE))
        with self._lock:
            self._old_pending += [path for path in report.old_pending if path not in leases]
            if report.pending and not report.full:
                self._old_pending.append(report.pending)
        if report.worker_gone:
            self._registered.lost(me)
        if report.full:
            self.publish(me, report.full, report.pending)
        done += [Settled(jobs[id(part)]) for part in report.done]
        done += [Settled(jobs[id(part)], lost=True) for part in report.fenced]
        for part, error in report.no_room:
            done.append(Settled(jobs[id(part)], refused="full", why=str(error)))
        for part, error in report.poison:
            done += self._refused(part, jobs[id(part)], error)
        self.finish([*report.done, *report.fenced])
        return self._again([(part, jobs[id(part)]) for part in report.stale], done)

    def _again(self, stale: list[tuple[Part, Job]], done: list[Settled]) -> list[tuple[Part, Job]]:
        """Those that have changed since they were read, as they are now."""
        again = []
        found = self._run(load([part.loaded.claim for part, _ in stale])) if stale else []
        standing = {item.claim.path: item for item in found}
        for part, job in stale:
            item = standing.get(part.loaded.claim.path)
            part.reloads += 1
            if item is None:
                done.append(Settled(job, lost=True))
            elif part.reloads > RELOADS_MAX:
                why = f"its commit is refused again and again, the last time by {part.refused_by}"
                done += self._refused(part, job, RuntimeError(why))
            else:
                job.loaded = part.loaded = item
                again.append((part, job))
        return again

    def _deliver_wide(self, part: Part, job: Job, done: list[Settled]) -> list[tuple[Part, Job]]:
        me = self._registered.me()
        owed = []
        step = deliver_wide(
            *(me, part, lambda: NO_ALLOWANCE, lambda claims: None),
            lambda full, pending: owed.append((full, pending)),
            partial(sealed, job, self._codec),
        )
        try:
            ended = self._run(step)
        except WorkerGone:
            # Whoever has cleared its claims node has published what it owed.
            self._registered.lost(me)
            return [(part, job)]
        except ServerFull as error:
            done.append(Settled(job, refused="full", why=str(error)))
        except ZkplanError as error:
            done += self._refused(part, job, error)
        else:
            done.append(Settled(job, lost=not ended))
            self.finish([part])
        for full, pending in owed:
            self.publish(me, full, pending)
        return []

    def _refused(self, part: Part, job: Job, error: Exception) -> list[Settled]:
        """ZooKeeper refuses this part for its own reason: the task fails, as in a worker."""
        failure = describe(error, job, self._codec)
        settled = settle_failure(
            *(job, failure, self._codec, self._paths), final=bool(part.dead), deliverable=False
        )
        found = self._carry_out([settled], [job], ())
        return [each._replace(refused="invalid", why=str(error)) for each in found]

    def publish(self, me: Registration, full: Sequence[Dependent], pending: str) -> None:
        """Publish what a commit has made complete."""
        self._run(publish(me, list(full), pending, NO_ALLOWANCE))

    def drop(self, leases: Sequence[str]) -> None:
        """Delete leases that have no claims left."""
        for lease in leases:
            self._run(_delete(self._paths.claims_of(lease)))

    def finish(self, parts: Sequence[Part]) -> None:
        """End the plans of these parts, where no task is left."""
        for path in {each.loaded.claim.plan_path for each in parts if each.may_end_plan}:
            if self._run(control.finish(path, time.time())):
                self._connection.sweeper.plan_is_done(path)

    def hand_back(self, claims: Sequence[Claim]) -> int:
        """Returns how many of them stood."""
        return self._run(hand_back(claims)) if claims else 0


def measure(ended: Ended) -> None:
    """Measure an attempt that has just ended, for the history of its plan."""
    if ended.job.started:
        now = time.monotonic()
        ended.fact = Fact(ran_ms=round(1000 * (now - ended.job.started)), ended=now)


def _delete(path: str) -> Step[None]:
    """Delete a lease; refused while claims stand under it."""
    yield Multi([Delete(path)])
