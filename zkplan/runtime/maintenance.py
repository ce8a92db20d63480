"""What a worker does besides running tasks: heartbeat, claims nodes of the gone, due entries,
checks, and the scan for plans that are not indexed.

Each duty has one preferred worker, by hash, and others step in when it does not act: so ten workers
do not all do the same, and none of it waits for one that is gone.
"""

from __future__ import annotations

import logging
import time
import zlib
from typing import TYPE_CHECKING, Any

from ..backoff import CHANCE
from ..protocol.active import Scanned
from ..protocol.check import Report, check
from ..protocol.look import promote
from ..protocol.membership import Cleared, clear_claims, orphaned_claims
from ..protocol.requests import ReadChildren, ReadData, ReadMany, Step
from ..text import count
from .delays import Delays
from .plan_scan import PlanScan

if TYPE_CHECKING:
    from .loop import Loop
    from .plan_view import PlanView

logger = logging.getLogger("zkplan.worker")

#: Claims nodes are looked at this often even when no watch fired; watches can be lost with a
#: connection.
CLAIMS_PERIOD_S = 1.0
#: The preferred worker's head start.
HEAD_START_S = 0.5
#: A claims node that could not be cleared is left alone for HEAD_START_S, doubled up to.
CLEARING_REST_MAX_S = 60.0
#: Entries made runnable in one transaction.
PROMOTED_PER_MULTI = 50
#: The listing of delayed entries is repeated this often even when no watch fired.
DELAYED_PERIOD_S = 5.0
#: The check of an idle plan: first after, then doubled up to. A large plan is checked less often.
CHECK_FIRST_S, CHECK_MAX_S, CHECK_COST = 2.0, 60.0, 50.0
#: The scan for plans of plain creates: how often at most, and at most one part in so many of the
#: time of all workers together; never less often than.
SCAN_PERIOD_S, SCAN_COST, SCAN_REST_MAX_S = 1.0, 50.0, 60.0
#: What a check that could not be made has found; its tasks are unknown, but not none.
UNCHECKED = Report(tasks=1)


class Maintenance:
    """The duties of one engine, each with its own clock."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self._beat_at = self._claims_at = self._delayed_at = self._check_at = self._poll_at = 0.0
        self._idle_polls = 0
        self._beating = self._clearing = self._listing = self._promoting = self._checking = False
        self._seen_vacant: dict[str, float] = {}
        self._being_cleared: set[str] = set()
        #: Claims nodes that could not be cleared: until when each is left alone, and for how long
        #: it was.
        self._clearing_rests: dict[str, tuple[float, float]] = {}
        self._delays = Delays()
        self._scan = PlanScan(loop.paths)
        # What is indexed comes first: the scan may have a large root to list.
        self._scan_at = time.monotonic() + SCAN_PERIOD_S
        self._scanning = False

    def touched(self, path: str | None) -> None:
        """A watch fired on workers or delayed entries, or the connection changed."""
        paths = self.loop.paths
        if path is None or path == paths.workers:
            self._claims_at = 0.0
        if path is None or path == paths.delayed:
            self._delayed_at = 0.0

    def next_due(self) -> float:
        clocks = (self._beat_at, self._claims_at, self._delayed_at, self._check_at, self._poll_at)
        return min(*clocks, self._scan_at, self._promote_at())

    def advance(self, now: float) -> None:
        """Start what is due; each duty runs once at a time."""
        if now >= self._beat_at:
            self._beat_at = now + self.loop.transport.session_timeout_s / 6
            self._beat()
        if now >= self._claims_at:
            self._claims_at = now + CLAIMS_PERIOD_S
            self._look_for_orphans()
        if now >= self._delayed_at:
            self._delayed_at = now + DELAYED_PERIOD_S
            self._list_delayed()
        if now >= self._promote_at():
            self._promote()
        if now >= self._check_at:
            self._check_at = now + 1.0
            self._check(now)
        if now >= self._scan_at:
            self._scan_at = now + SCAN_PERIOD_S
            self._look_for_unindexed(now)
        if now >= self._poll_at:
            self._poll(now)

    def _poll(self, now: float) -> None:
        """Look for work that no watch announced: a watch may be lost with its connection."""
        loop = self.loop
        self._idle_polls = 0 if loop.claims.held else self._idle_polls + 1
        self._poll_at = now + loop.backoff.delay_s(self._idle_polls, CHANCE.random())
        if self._idle_polls > 1:
            loop.poller.look_again()

    # ---- heartbeat

    def _beat(self) -> None:
        """Ask whether this worker is still registered and which claims it still holds.

        One at a time: while an answer is outstanding the client falls silent, and kazoo notices a
        server that hangs only when the client is silent.
        """
        me = self.loop.me
        if self._beating or me is None:
            return
        self._beating = True
        held = list(self.loop.claims.jobs)
        # Claims of an earlier life lie on its claims node, until somebody clears it.
        claims_nodes = sorted({path.rpartition("/")[0] for path in held})

        def beat(answers: list[Any]) -> None:
            self._beating = False
            if answers[0] is None:
                self.loop.lost_registration(me)
            standing = {
                f"{claims_node}/{name}"
                for claims_node, names in zip(claims_nodes, answers[1:], strict=True)
                for name in names or ()
            }
            for path in held:
                job = self.loop.claims.jobs.get(path)
                if job is not None and path not in standing:
                    job.stop_reason = "its claim was released: another worker has the task"

        reads: list[ReadData | ReadChildren] = [ReadData(me.worker_path)]
        reads += [ReadChildren(claims_node) for claims_node in claims_nodes]
        self.loop.go(_read(ReadMany(reads)), beat)

    # ---- claims nodes

    def _look_for_orphans(self) -> None:
        if not self._clearing:
            self._clearing = True
            self.loop.go(_watch_workers(self.loop), self._orphans_seen)

    def _orphans_seen(self, seen: tuple[list[str], list[str]]) -> None:
        self._clearing = False
        loop, now = self.loop, time.monotonic()
        living, vacant = seen
        if living != loop.living:
            loop.living = living
        place, count = loop.share
        # Its own claims node of an earlier life is cleared once nothing that lies on it still runs.
        mine = {path.split("/")[-2] for path in loop.claims.jobs}
        for claims_node in vacant:
            if claims_node in mine:
                continue
            first_seen = self._seen_vacant.setdefault(claims_node, now)
            preferred = zlib.crc32(claims_node.encode()) % count == place
            late = now - first_seen >= HEAD_START_S
            rests_until, _ = self._clearing_rests.get(claims_node, (0.0, 0.0))
            if (
                (preferred or late)
                and now >= rests_until
                and claims_node not in self._being_cleared
            ):
                self._being_cleared.add(claims_node)
                if claims_node not in self._clearing_rests:
                    logger.info("worker %s is gone: clearing its claims node", claims_node)
                self._clear(claims_node)
        if any(claims_node not in self._clearing_rests for claims_node in vacant):
            self._claims_at = min(self._claims_at, now + HEAD_START_S)
        for claims_node in set(self._seen_vacant) - set(vacant):
            del self._seen_vacant[claims_node]
            self._clearing_rests.pop(claims_node, None)

    def _clear(self, claims_node: str) -> None:
        def cleared(done: Cleared) -> None:
            self._cleared(claims_node, done)

        step = clear_claims(self.loop.paths, claims_node)
        what = f"the claims of worker {claims_node} cannot be cleared"
        self.loop.go_contained(step, cleared, what, instead=Cleared([]))

    def _cleared(self, claims_node: str, done: Cleared) -> None:
        self._being_cleared.discard(claims_node)
        if not done.gone:
            _, paused = self._clearing_rests.get(claims_node, (0.0, 0.0))
            pause = min(CLEARING_REST_MAX_S, max(HEAD_START_S, 2 * paused))
            self._clearing_rests[claims_node] = (time.monotonic() + pause, pause)
        if done.strange:
            path = self.loop.paths.claims_of(claims_node)
            self.loop.complaints.tell(
                f"{path} holds znodes that zkplan did not make, so it stays: delete them"
            )
        if done.shut:
            self.loop.complaints.tell(
                f"the claims of worker {claims_node} cannot be cleared: {done.shut[0]}"
            )
        self.loop.statistics.released += len(done.released)
        for task_path, n in done.released:
            self.loop.runner.losses.note(task_path, n, claims_node)
        if done.released:
            logger.warning(
                "took over from worker %s: %s runnable again",
                claims_node,
                count(len(done.released), "task"),
            )

    # ---- delayed entries

    def _list_delayed(self) -> None:
        if self._listing:
            return
        self._listing, known = True, self._delays.strange

        def listed(_: None) -> None:
            self._listing = False
            if self._delays.strange and not known:
                self.loop.complaints.tell(
                    f"{self.loop.paths.delayed} holds names that are no entries, and are passed "
                    f"over: {self._delays.strange!r:.100}"
                )

        self.loop.go(self._delays.look(self.loop.paths), listed)

    def _promote_at(self) -> float:
        """Monotonic time at which the first delayed entry is due."""
        found = None if self._promoting else self._delays.next(time.monotonic(), time.time())
        if found is None:
            return float("inf")
        name, at = found
        place, count = self.loop.share
        return at + (0.0 if zlib.crc32(name.encode()) % count == place else HEAD_START_S)

    def _promote(self) -> None:
        due = self._delays.take(time.monotonic(), time.time(), PROMOTED_PER_MULTI)
        if not due:
            return
        self._promoting = True

        def promoted(shut: dict[str, str]) -> None:
            self._promoting = False
            self._delays.rest(shut, time.monotonic())
            for name, why in shut.items():
                self.loop.complaints.tell(
                    f"{self.loop.paths.delayed}/{name} cannot be made runnable: {why}"
                )

        step = promote(self.loop.paths, due)
        self.loop.go_contained(step, promoted, "delayed entries cannot be promoted", instead={})

    # ---- background check

    def _check(self, now: float) -> None:
        """One plan at a time, each by one worker; only plans that stand still."""
        loop = self.loop
        if self._checking or loop.me is None:
            return
        view = loop.poller.candidates.to_check(now, loop.share, CHECK_FIRST_S)
        if view is None:
            return
        self._checking = True

        def checked(report: Report) -> None:
            self._checked(view, now, report)

        step = check(loop.paths, view.number)
        loop.go_contained(step, checked, f"{view.path} cannot be checked", instead=UNCHECKED)

    def _checked(self, view: PlanView, started: float, report: Report) -> None:
        self._checking = False
        loop, now = self.loop, time.monotonic()
        found = report.created or report.published
        view.check_s = CHECK_FIRST_S if found else min(CHECK_MAX_S, 2 * view.check_s)
        view.check_at = now + max(view.check_s, CHECK_COST * (now - started))
        if report.done:
            view.finished = True
        elif not report.tasks:
            # The worker that committed the last task may have died before it looked for the end.
            loop.delivery.finish(view.path)
        if found:
            logger.info(
                "%s: the check published %s", view.path, count(len(report.published), "task")
            )
            loop.poller.candidates.touched(view.number, control=False)
        for problem in report.problems:
            loop.complaints.tell(f"{view.path}: {problem}")

    # ---- plans of plain creates

    def _look_for_unindexed(self, started: float) -> None:
        loop = self.loop
        if self._scanning or loop.me is None:
            return
        self._scanning = True

        def scanned(found: Scanned) -> None:
            self._scanning = False
            self._scan.learn(found)
            now = time.monotonic()
            rest = SCAN_COST * (now - started) * loop.share[1]
            self._scan_at = now + min(SCAN_REST_MAX_S, max(SCAN_PERIOD_S, rest))
            for why in found.shut:
                loop.complaints.tell(why)

        step = self._scan.next_slice(loop.share, loop.poller.candidates.views)
        what = "plans of other clients are not looked for"
        loop.go_contained(step, scanned, what, instead=Scanned([], []))


def _read(request: ReadMany | ReadChildren) -> Step:  # type: ignore[type-arg]
    return (yield request)


def _watch_workers(loop: Loop) -> Step[tuple[list[str], list[str]]]:
    yield ReadChildren(loop.paths.workers, watch=True)
    return (yield from orphaned_claims(loop.paths))
