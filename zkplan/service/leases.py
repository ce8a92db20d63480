"""Leases: claims for programs without a session, as calls of Python."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

from ..author.functions import KIND_NAMES
from ..basics.public_calls import Duration, in_seconds
from ..errors import InvalidTask, NotSerialisable, PayloadTooLarge, ServerFull, ZkplanError
from ..plan import Plan
from ..protocol.core.plans_and_queues import plan_record
from ..protocol.features import leases
from ..protocol.features.leases import LEASE_MS_MAX, LEASE_MS_MIN
from ..protocol.layout import DEFAULT_QUEUE, QUEUE_NAMES, parse_queue
from ..protocol.records import Failure
from ..runtime.attempts import TRACEBACK_CHARS_MAX, deadline_passed
from ..runtime.context import LOGS_PER_ATTEMPT
from ..runtime.job import Ended, Job
from ..runtime.runner import RESULT_BYTES_MAX
from ..values.codec import LOG, VALUE, Codec
from ..values.connection import Connection
from ..values.plan_values import Values
from .lease_board import Board
from .lease_claims import Claiming, claim_id
from .lease_maintenance import Decided, Maintenance
from .lease_records import (
    UNKNOWN,
    ClaimId,
    Failed,
    Held,
    Leased,
    Outcome,
    Renewal,
    is_held_by,
    parse_id,
    why_lost,
)
from .lease_settlement import Registered, Settled, Settling
from .lease_updates import (
    OPERATIONS_MAX,
    Add,
    Complete,
    Decide,
    Operation,
    Refused,
    Updated,
    Updating,
)

__all__ = [
    "Add",
    "Complete",
    "Decide",
    "Failed",
    "Leased",
    "Leases",
    "Outcome",
    "Refused",
    "Renewal",
    "Updated",
    "is_held_by",
]

#: How many tasks one call claims, settles or renews, and how long a call may wait, in seconds.
BATCH_MAX, WAIT_S_MAX = 500, 60.0
#: The most bytes of one log entry, as JSON.
LOG_BYTES_MAX = 64 * 1024
_TOO_MANY_LOGS = f"an attempt has at most {LOGS_PER_ATTEMPT} log entries"


class Leases:
    """Claims tasks of kinds for programs without a session, and settles them. Thread-safe.

    `kinds` None claims any task that has a kind; others are Python functions, and for workers. A
    lease counts for `lease` seconds from the claim, and from each renewal; then anybody may give
    its tasks to others. No value is unpickled. Call `close` at the end, or use it as a context
    manager; the client stays open.
    """

    def __init__(self, connection: Connection) -> None:
        self._paths, self._transport = connection.paths, connection.transport
        codec = Codec("json", has_keys=bool(connection.keys))
        self._values = Values(self._transport, codec, connection.values.store)
        self._registered = Registered(self._transport, self._paths)
        self._held = Held()
        self.board = Board(self._transport, self._paths, lambda: self._registered.measured().now())
        self._claiming = Claiming(connection, self._values, self._registered, self.board)
        self._settling = Settling(connection, self._values.codec, self._registered)
        self._updating = Updating(connection, self._values.codec, self._registered, self._settling)
        decided = Decided(connection, self._registered, self._claiming, self._settling)
        self._maintenance = Maintenance(connection, self._registered, decided)
        self._maintenance.start()

    def close(self) -> None:
        """Leases that were given out go on: another service may take what comes of them."""
        self._maintenance.stop()
        self.board.close()
        self._registered.leave()

    def __enter__(self) -> Leases:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def claim(
        self,
        queues: Sequence[str] = (DEFAULT_QUEUE,),
        kinds: Collection[str] | None = None,
        count: int = 1,
        wait: Duration = 0.0,
        lease: Duration = 30.0,
        holder: str = "",
    ) -> list[Leased]:
        """Claim up to `count` tasks of one plan and queue, under one lease.

        A service gives it to a `holder`, and takes what comes of it from nobody else
        (`is_held_by`). Of several queues the first that has any is served. If there are none now,
        it waits up to `wait` seconds for some, at no cost to ZooKeeper. Raises InvalidTask for a
        value out of range, ZooKeeperUnavailable, ServerFull.
        """
        wait, lease = in_seconds(wait), in_seconds(lease)
        lease_ms = check_claim(queues, kinds, count, wait, lease)
        deadline = time.monotonic() + wait
        while True:
            seen = self.board.changes
            given = self._claiming.claim(queues, kinds, count, lease_ms, holder)
            if given is not None:
                for _, job in given.tasks:
                    self._held.put(claim_id(job.claim), job)
                self._settling.hand_back(given.back)
                if given.ended:
                    self._settling.settle(given.ended, ())
                if given.tasks:
                    return [task for task, _ in given.tasks]
                continue
            left = deadline - time.monotonic()
            if left <= 0:
                return []
            self.board.wait(seen, left)

    def renew(self, ids: Sequence[str]) -> list[Renewal]:
        """Let the leases of these claims count from now on, and say which claims still stand."""
        known = self._parsed(ids)
        now_s = self._registered.measured().now()
        names = {each.lease for each in known.values() if each is not None}
        step = leases.renew(self._paths, sorted(names))
        held = {each.lease: each.names for each in self._transport.run(step)}
        standing = {
            text: each is not None and each.name in (held[each.lease] or ())
            for text, each in known.items()
        }
        lost = self._why([text for text in ids if not standing[text]], known)
        found = []
        for text in ids:
            each = known[text]
            if standing[text] and each is not None:
                found.append(Renewal(text, True, now_s + leases.lease_s(each.lease)))
            else:
                refused = lost[text]
                found.append(Renewal(text, False, 0.0, refused.refused, refused.why))
        return found

    def complete(self, results: Sequence[tuple[str, Any]]) -> list[Outcome]:
        """Commit the results, JSON values, of these claims: together where they fit."""
        return self._settle([(text, value) for text, value in results], self._completed)

    def fail(self, failures: Sequence[Failed]) -> list[Outcome]:
        """Let these attempts fail: the tasks run again, or are dead, as their attempts say."""
        return self._settle([(each.id, each) for each in failures], _failed)

    def hand_back(self, ids: Sequence[str]) -> list[Outcome]:
        """Give these tasks back unused: it costs no attempt."""
        return self._settle([(text, None) for text in ids], lambda job, _: Ended(job, stopped=True))

    def update(
        self, plan: Plan, operations: Sequence[Operation], key: str | None = None, body: str = ""
    ) -> Updated:
        """Do all of this to tasks of `plan`, in one transaction, or nothing.

        With a `key`, an update is applied once: a repeat answers as the first time; `body` says in
        short what is asked, so that another update with the same key is refused. Raises
        UpdateRefused with everything that does not fit, UpdateTooLarge, InvalidTask, and what
        adding tasks raises.
        """
        if not 1 <= len(operations) <= OPERATIONS_MAX:
            told = f"an update takes 1 to {OPERATIONS_MAX} operations, not {len(operations)}"
            raise InvalidTask("", told)
        given = {each.id: each.value for each in operations if isinstance(each, Complete)}
        if len(given) < sum(isinstance(each, Complete) for each in operations):
            raise InvalidTask("", "an update completes each claim once")
        before = self._updating.before(plan, key, body)
        if before is not None:
            return before
        known = self._parsed(given)
        jobs = self._jobs(list(given), known, take=True)
        try:
            made: dict[str, Ended | Outcome] = {}
            for text, job in jobs.items():
                end = job if isinstance(job, Ended) else self._completed(job, given[text])
                made[text] = Outcome(text, False, "invalid", end) if isinstance(end, str) else end
            missing = [text for text in given if text not in made]
            made |= self._why(missing, known) if missing else {}
            why = partial(self._why, known=known)
            done = self._updating.update(plan, operations, made, why, key, body)
        except BaseException:
            for text, job in jobs.items():
                self._keep(text, known, job)  # most likely the claim stands
            raise
        if not done.repeated:
            leases = self._held.emptied(each.lease for each in known.values() if each is not None)
            self._settling.drop(leases)
        return done

    def log(self, text: str, number: int, value: Any) -> Outcome:
        """Write the log entry `number` of this attempt, counted from 1, a JSON value.

        An entry that was written before is taken for written. One that leaves out numbers is
        refused: `why` names the next one.
        """
        known = self._parsed([text])
        if not 1 <= number <= LOGS_PER_ATTEMPT:
            return Outcome(text, False, "invalid", _TOO_MANY_LOGS)
        try:
            body = self._values.codec.open(VALUE, self._values.codec.seal_value(value))[1]
        except NotSerialisable as error:
            return Outcome(text, False, "invalid", str(error))
        if len(body) > LOG_BYTES_MAX:
            return Outcome(text, False, "invalid", f"a log entry has at most {LOG_BYTES_MAX} bytes")
        job = self._jobs([text], known, take=False).get(text)
        if not isinstance(job, Job):
            return self._why([text], known)[text]
        try:
            sealed = self._values.codec.seal(LOG, body)
            written = self._transport.run(leases.log(job.claim, number, sealed))
        except ServerFull as error:
            return Outcome(text, False, "full", str(error))
        if written is None:
            return self._why([text], known)[text]
        if isinstance(written, int) and written < number:
            why = f"entry {number} was not written: the next one is {written + 1}"
            return Outcome(text, False, "invalid", why)
        if isinstance(written, str):
            job.loaded.others.append(written)
        return Outcome(text, True)

    # ---- inside

    def _parsed(self, ids: Iterable[str]) -> dict[str, ClaimId | None]:
        known = {text: parse_id(text) for text in ids}
        if len(known) > BATCH_MAX:
            raise InvalidTask("", f"one call takes at most {BATCH_MAX} claims, not {len(known)}")
        return known

    def _why(self, ids: Sequence[str], known: dict[str, ClaimId | None]) -> dict[str, Outcome]:
        there = [(text, each) for text in ids if (each := known[text]) is not None]
        told = self._transport.run(why_lost(self._paths, [each for _, each in there]))
        found = {
            text: Outcome(text, False, refused, why)
            for (text, _), (refused, why) in zip(there, told, strict=True)
        }
        return {text: found.get(text, Outcome(text, False, "lapsed", UNKNOWN)) for text in ids}

    def _jobs(
        self, ids: Sequence[str], known: dict[str, ClaimId | None], *, take: bool
    ) -> dict[str, Job | Ended]:
        """What stands of these claims, as far as this process knows or can read."""
        found: dict[str, Job | Ended] = {}
        unread: list[tuple[str, ClaimId]] = []
        for text in ids:
            each = known[text]
            if each is None:
                continue
            job = self._held.take(each) if take else self._held.find(each)
            if job is not None:
                found[text] = job
            else:
                unread.append((text, each))
        if unread:
            step = leases.claims_under(self._paths, [each for _, each in unread])
            for (text, each), claim in zip(unread, self._transport.run(step), strict=True):
                if claim is None:
                    continue
                try:
                    record = self._transport.run(plan_record(claim.plan_path))
                except ZkplanError:
                    continue  # its plan was removed
                again = self._claiming.again(claim, record)
                if again is not None:
                    found[text] = again
                if isinstance(again, Job) and not take:
                    self._held.put(each, again)
        return found

    def _settle(
        self, wanted: list[tuple[str, Any]], end: Callable[[Job, Any], Ended | str]
    ) -> list[Outcome]:
        known = self._parsed(text for text, _ in wanted)
        given = dict(wanted)
        jobs = self._jobs(list(given), known, take=True)
        outcomes: dict[str, Outcome] = {}
        ended: list[Ended] = []
        text_of: dict[int, str] = {}
        for text, job in jobs.items():
            made = job if isinstance(job, Ended) else end(job, given[text])
            if isinstance(made, Ended):
                ended.append(made)
                text_of[id(made.job)] = text
            else:
                outcomes[text] = Outcome(text, False, "invalid", made)
                self._keep(text, known, job)
        emptied = self._held.emptied(known[text_of[id(each.job)]].lease for each in ended)  # type: ignore[union-attr]
        lost: list[str] = []
        for settled in self._settling.settle(ended, emptied):
            text = text_of[id(settled.job)]
            outcomes[text] = self._outcome(text, settled, jobs[text], lost)
            if settled.refused == "full":
                self._keep(text, known, settled.job)
        gone = [text for text in given if text not in outcomes] + lost
        outcomes |= self._why(gone, known)
        return [outcomes[text] for text, _ in wanted]

    def _outcome(self, text: str, settled: Settled, job: Job | Ended, lost: list[str]) -> Outcome:
        if settled.lost:
            lost.append(text)
        elif isinstance(job, Ended):  # it had ended before the program said anything
            return Outcome(text, False, "ended", "the task has ended without it: see its outcome")
        return Outcome(text, not settled.refused, settled.refused, settled.why)

    def _keep(self, text: str, known: dict[str, ClaimId | None], job: Job | Ended) -> None:
        each = known[text]
        if each is not None and isinstance(job, Job):
            self._held.put(each, job)

    def _completed(self, job: Job, value: Any) -> Ended | str:
        if time.monotonic() >= job.last_call:
            return Ended(job, failure=deadline_passed(job), final=True)
        claim = job.claim
        key = f"{claim.task}.{claim.n}"
        try:
            sealed = self._values.seal(claim.plan_path, key, value, job.kept_name, True)
        except NotSerialisable as error:
            return str(error)
        if len(sealed) > RESULT_BYTES_MAX:
            return str(PayloadTooLarge(f"the result of {job.name}", len(sealed), RESULT_BYTES_MAX))
        return Ended(job, outcome=sealed)


def _failed(job: Job, told: Failed) -> Ended:
    frames, n = told.traceback[-TRACEBACK_CHARS_MAX:], job.claim.n
    failure = Failure(told.kind[:200], told.message[:2000], frames, job.worker, n, time.time())
    return Ended(job, failure=failure, final=not told.retry)


def check_claim(
    queues: Sequence[str], kinds: Collection[str] | None, count: int, wait: float, lease: float
) -> int:
    """The milliseconds of the lease. Raises InvalidTask."""
    for queue in queues:
        if parse_queue(queue) is None:
            raise InvalidTask("", f"a queue: {QUEUE_NAMES}, unlike {queue!r:.60}")
    for kind in kinds or ():
        if parse_queue(kind) is None:
            raise InvalidTask("", f"{KIND_NAMES}, unlike {kind!r:.60}")
    if not queues or not 1 <= count <= BATCH_MAX:
        raise InvalidTask("", f"a claim is for 1 to {BATCH_MAX} tasks of at least one queue")
    if not 0 <= wait <= WAIT_S_MAX:
        raise InvalidTask("", f"a claim waits 0 to {WAIT_S_MAX:g} seconds, not {wait!r}")
    lease_ms = int(lease * 1000)
    if not LEASE_MS_MIN <= lease_ms <= LEASE_MS_MAX:
        least, most = LEASE_MS_MIN // 1000, LEASE_MS_MAX // 1000
        raise InvalidTask("", f"a lease counts for {least} to {most} seconds, not {lease!r}")
    return lease_ms
