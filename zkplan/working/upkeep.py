"""What a worker does besides running tasks: heartbeat, desks of the gone, due entries, checks.

Each duty has one preferred worker, by hash, and others step in when it does not act: so ten workers
do not all do the same, and none of it waits for one that is gone.
"""

from __future__ import annotations

import logging
import time
import zlib
from typing import TYPE_CHECKING, Any

from ..backoff import CHANCE
from ..protocol.check import Report, check
from ..protocol.desk import Cleared, clear_desk, vacant_desks
from ..protocol.look import promote
from ..requests import ReadChildren, ReadData, ReadMany, Step
from ..wording import count
from .delays import Delays

if TYPE_CHECKING:
    from .engine import Engine
    from .plan_view import PlanView

logger = logging.getLogger("zkplan.worker")

#: Desks are looked at this often even when no watch fired; watches can be lost with a connection.
DESKS_PERIOD_S = 1.0
#: The preferred worker's head start.
HEAD_START_S = 0.5
#: A desk that could not be cleared is left alone for HEAD_START_S, doubled up to.
DESK_REST_MAX_S = 60.0
#: Entries made runnable in one transaction.
PROMOTED_PER_MULTI = 50
#: The listing of delayed entries is repeated this often even when no watch fired.
LATER_PERIOD_S = 5.0
#: The check of an idle plan: first after, then doubled up to. A large plan is checked less often.
CHECK_FIRST_S, CHECK_MAX_S, CHECK_COST = 2.0, 60.0, 50.0
#: What a check that could not be made has found; its tasks are unknown, but not none.
UNCHECKED = Report(tasks=1)


class Upkeep:
    """The duties of one engine, each with its own clock."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._beat_at = self._desks_at = self._later_at = self._check_at = self._poll_at = 0.0
        self._idle_polls = 0
        self._beating = self._clearing = self._listing = self._promoting = self._checking = False
        self._seen_vacant: dict[str, float] = {}
        self._desks_clearing: set[str] = set()
        #: Desks that could not be cleared: until when each is left alone, and for how long it was.
        self._desks_resting: dict[str, tuple[float, float]] = {}
        self._delays = Delays()

    def touched(self, path: str | None) -> None:
        """A watch fired on workers or delayed entries, or the connection changed."""
        paths = self.engine.paths
        if path is None or path == paths.workers:
            self._desks_at = 0.0
        if path is None or path == paths.later:
            self._later_at = 0.0

    def next_due(self) -> float:
        clocks = (self._beat_at, self._desks_at, self._later_at, self._check_at, self._poll_at)
        return min(*clocks, self._promote_at())

    def advance(self, now: float) -> None:
        """Start what is due; each duty runs once at a time."""
        if now >= self._beat_at:
            self._beat_at = now + self.engine.keeper.session_timeout_s / 6
            self._beat()
        if now >= self._desks_at:
            self._desks_at = now + DESKS_PERIOD_S
            self._look_at_desks()
        if now >= self._later_at:
            self._later_at = now + LATER_PERIOD_S
            self._list_later()
        if now >= self._promote_at():
            self._promote()
        if now >= self._check_at:
            self._check_at = now + 1.0
            self._check(now)
        if now >= self._poll_at:
            self._poll(now)

    def _poll(self, now: float) -> None:
        """Look for work that no watch announced: a watch may be lost with its connection."""
        engine = self.engine
        self._idle_polls = 0 if engine.claims.held else self._idle_polls + 1
        self._poll_at = now + engine.backoff.delay_s(self._idle_polls, CHANCE.random())
        if self._idle_polls > 1:
            engine.seeker.look_again()

    # ---- heartbeat

    def _beat(self) -> None:
        """Ask whether this worker is still registered and which claims it still holds.

        One at a time: while an answer is outstanding the client falls silent, and kazoo notices a
        server that hangs only when the client is silent.
        """
        me = self.engine.me
        if self._beating or me is None:
            return
        self._beating = True
        held = list(self.engine.claims.jobs)
        # Claims of an earlier life lie on its desk, until somebody clears it.
        desks = sorted({path.rpartition("/")[0] for path in held})

        def beat(answers: list[Any]) -> None:
            self._beating = False
            if answers[0] is None:
                self.engine.lost_registration(me)
            standing = {
                f"{desk}/{name}"
                for desk, names in zip(desks, answers[1:], strict=True)
                for name in names or ()
            }
            for path in held:
                job = self.engine.claims.jobs.get(path)
                if job is not None and path not in standing:
                    job.stop_reason = "its claim was released: another worker has the task"

        reads: list[ReadData | ReadChildren] = [ReadData(me.worker_path)]
        reads += [ReadChildren(desk) for desk in desks]
        self.engine.go(_read(ReadMany(reads)), beat)

    # ---- desks

    def _look_at_desks(self) -> None:
        if not self._clearing:
            self._clearing = True
            self.engine.go(_watch_workers(self.engine), self._desks_seen)

    def _desks_seen(self, seen: tuple[list[str], list[str]]) -> None:
        self._clearing = False
        engine, now = self.engine, time.monotonic()
        living, vacant = seen
        if living != engine.living:
            engine.living = living
        place, count = engine.share
        # Its own desk of an earlier life is cleared once nothing that lies on it still runs.
        mine = {path.split("/")[-2] for path in engine.claims.jobs}
        for desk in vacant:
            if desk in mine:
                continue
            first_seen = self._seen_vacant.setdefault(desk, now)
            preferred = zlib.crc32(desk.encode()) % count == place
            late = now - first_seen >= HEAD_START_S
            rests_until, _ = self._desks_resting.get(desk, (0.0, 0.0))
            if (preferred or late) and now >= rests_until and desk not in self._desks_clearing:
                self._desks_clearing.add(desk)
                if desk not in self._desks_resting:
                    logger.info("worker %s is gone: clearing its desk", desk)
                self._clear(desk)
        if any(desk not in self._desks_resting for desk in vacant):
            self._desks_at = min(self._desks_at, now + HEAD_START_S)
        for desk in set(self._seen_vacant) - set(vacant):
            del self._seen_vacant[desk]
            self._desks_resting.pop(desk, None)

    def _clear(self, desk: str) -> None:
        def cleared(done: Cleared) -> None:
            self._cleared(desk, done)

        step = clear_desk(self.engine.paths, desk)
        what = f"the desk of worker {desk} cannot be cleared"
        self.engine.go_contained(step, cleared, what, instead=Cleared([]))

    def _cleared(self, desk: str, done: Cleared) -> None:
        self._desks_clearing.discard(desk)
        if not done.gone:
            _, paused = self._desks_resting.get(desk, (0.0, 0.0))
            pause = min(DESK_REST_MAX_S, max(HEAD_START_S, 2 * paused))
            self._desks_resting[desk] = (time.monotonic() + pause, pause)
        if done.strange:
            path = self.engine.paths.desk(desk)
            self.engine.complaints.tell(
                f"{path} holds znodes that zkplan did not make, so it stays: delete them"
            )
        if done.shut:
            self.engine.complaints.tell(
                f"the desk of worker {desk} cannot be cleared: {done.shut[0]}"
            )
        self.engine.statistics.released += len(done.released)
        for task_path, n in done.released:
            self.engine.runner.losses.note(task_path, n, desk)
        if done.released:
            logger.warning(
                "took over from worker %s: %s runnable again",
                desk,
                count(len(done.released), "task"),
            )

    # ---- delayed entries

    def _list_later(self) -> None:
        if self._listing:
            return
        self._listing, known = True, self._delays.strange

        def listed(_: None) -> None:
            self._listing = False
            if self._delays.strange and not known:
                self.engine.complaints.tell(
                    f"{self.engine.paths.later} holds names that are no entries, and are passed "
                    f"over: {self._delays.strange!r:.100}"
                )

        self.engine.go(self._delays.look(self.engine.paths), listed)

    def _promote_at(self) -> float:
        """Monotonic time at which the first delayed entry is due."""
        found = None if self._promoting else self._delays.next(time.monotonic(), time.time())
        if found is None:
            return float("inf")
        name, at = found
        place, count = self.engine.share
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
                self.engine.complaints.tell(
                    f"{self.engine.paths.later}/{name} cannot be made runnable: {why}"
                )

        step = promote(self.engine.paths, due)
        self.engine.go_contained(step, promoted, "delayed entries cannot be promoted", instead={})

    # ---- background check

    def _check(self, now: float) -> None:
        """One plan at a time, each by one worker; only plans that stand still."""
        engine = self.engine
        if self._checking or engine.me is None:
            return
        view = engine.seeker.candidates.to_check(now, engine.share, CHECK_FIRST_S)
        if view is None:
            return
        self._checking = True

        def checked(report: Report) -> None:
            self._checked(view, now, report)

        step = check(engine.paths, view.number)
        engine.go_contained(step, checked, f"{view.path} cannot be checked", instead=UNCHECKED)

    def _checked(self, view: PlanView, started: float, report: Report) -> None:
        self._checking = False
        engine, now = self.engine, time.monotonic()
        found = report.created or report.published
        view.check_s = CHECK_FIRST_S if found else min(CHECK_MAX_S, 2 * view.check_s)
        view.check_at = now + max(view.check_s, CHECK_COST * (now - started))
        if report.done:
            view.finished = True
        elif not report.tasks:
            # The worker that committed the last task may have died before it looked for the end.
            engine.delivery.finish(view.path)
        if found:
            logger.info(
                "%s: the check published %s", view.path, count(len(report.published), "task")
            )
            engine.seeker.candidates.touched(view.number, control=False)
        for problem in report.problems:
            engine.complaints.tell(f"{view.path}: {problem}")


def _read(request: ReadMany | ReadChildren) -> Step:  # type: ignore[type-arg]
    return (yield request)


def _watch_workers(engine: Engine) -> Step[tuple[list[str], list[str]]]:
    yield ReadChildren(engine.paths.workers, watch=True)
    return (yield from vacant_desks(engine.paths))
