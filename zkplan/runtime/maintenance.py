"""Keep a worker in order: heartbeat, idle poll, checks of plans, and a scan for plans that no
index names.

An idle worker relies on watches. What it does without them becomes ever rarer, until it costs next
to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from ..backoff import Backoff
from ..basics.log import get_logger
from ..basics.text import count
from ..protocol.core.plan_indexes import EndedPlan, Scanned, find_unindexed
from ..protocol.core.plans_and_queues import list_plans, read_queues
from ..protocol.core.workers import report
from ..protocol.features.plan_check import Report, check
from ..protocol.layout import Paths
from ..protocol.records import taken_from_bytes
from ..protocol.requests import Node, ReadChildren, ReadData, ReadMany, Step
from ..protocol.transactions import Registration
from ..transport.server_clock import Clock
from .claims import Claims
from .idle_queue import IdleQueue
from .job import LOST, TAKEN
from .membership import Membership
from .plan_candidates import Candidates
from .plan_view import PlanView
from .slots import Slots
from .steps import SAFETY_LOOK_S, Steps

logger = get_logger("zkplan.worker")

#: Seconds between two looks for a plan whose check is due.
CHECK_PERIOD_S = 1.0
#: The most problems of one check that the log names.
PROBLEMS_MAX = 20
#: The pause of the heartbeat without claims: the watch of an operator's order may be lost.
HEARTBEAT_REST_S = 50.0
#: The longest pause of the idle poll. It is one request for all plans.
POLL_MAX_S = 20.0
#: The check of an idle plan: first after, then doubled up to. A large plan is checked less often.
CHECK_FIRST_S, CHECK_MAX_S, CHECK_COST = 2.0, 60.0, 50.0
#: The scan for plans that the index lacks: the shortest period, and the largest part of the time of
#: all workers together (one in SCAN_COST). The period doubles while the scan finds nothing new.
SCAN_PERIOD_S, SCAN_COST = 1.0, 50.0
#: The report of a check that could not be made. Its tasks are unknown, but not zero.
UNCHECKED = Report(tasks=1)


class Duty(Protocol):
    """A repeated duty, due next at the monotonic time `at`."""

    @property
    def at(self) -> float: ...

    def run(self, now: float) -> None:
        """Start the duty and move `at`. It is not started again while it is under way."""


@dataclass(eq=False)
class IdlePoll:
    """Looks for work that no watch announced, as watches may be lost with their connection."""

    backoff: Backoff
    claims: Claims
    idle_queue: IdleQueue
    look_again: Callable[[], None]
    chance: Random
    _last_at: float = float("-inf")
    _delay_s: float = 0.0
    _count: int = 0

    @property
    def at(self) -> float:
        # The first of the queue polls for those that sleep.
        least_s = SAFETY_LOOK_S if self.idle_queue.is_asleep else 0.0
        return self._last_at + max(self._delay_s, least_s)

    def run(self, now: float) -> None:
        self._count = 0 if self.claims.held else self._count + 1
        self._last_at, self._delay_s = now, self.backoff.delay_s(self._count, self.chance.random())
        if self._count > 1:
            self.look_again()


@dataclass(eq=False)
class Heartbeat:
    """Asks whether this worker is still registered, and which claims it still holds.

    Without claims, a watch on the registration is enough: kazoo's pings show whether the server
    answers. Makes only one request at a time: kazoo notices a server that hangs only while the
    client sends nothing, so the heartbeat sends nothing while it waits for an answer.
    """

    steps: Steps
    membership: Membership
    claims: Claims
    clock: Clock
    period_s: float
    _last_at: float = float("-inf")
    _is_under_way: bool = False
    #: The paths of claims that operators have taken from this worker, as far as it was told.
    _taken: set[str] = field(default_factory=set)

    @property
    def at(self) -> float:
        soon = self._last_at + self.period_s
        if self.claims.jobs:
            return soon
        return max(soon, min(self._last_at + HEARTBEAT_REST_S, self.membership.must_ask_at))

    def _hurry(self) -> None:
        self._last_at = float("-inf")

    def touched(self, path: str | None) -> None:
        """A watch fired. None: the connection changed, so any watch may have fired.

        An operator who takes a claim writes the data of the claims node. An order to the worker is
        in the data of its registration.
        """
        me = self.membership.me
        if me is None or path not in (None, me.claims_path, me.worker_path):
            return
        what = f"the znodes of worker {me.worker} cannot be watched"
        self.steps.start_contained(self._watch(me), lambda _: None, what, instead=None)

    def _watch(self, me: Registration) -> Step[None]:
        node = yield ReadData(me.claims_path, watch=True)
        if node is not None and node.data:
            self._taken.add(f"{me.claims_path}/{taken_from_bytes(node.data)}")
            self._hurry()
        self._learn(me, (yield ReadData(me.worker_path, watch=True)))

    def _learn(self, me: Registration, registration: Node | None) -> None:
        self.membership.server_clock.see_registration(me.worker_path, registration)
        if registration is None:
            self.membership.lost(me)
        else:
            self.membership.read(registration)

    def run(self, now: float) -> None:
        self._last_at = now
        me = self.membership.me
        if self._is_under_way or me is None:
            return
        self._is_under_way = True
        self.steps.start(self._beat(me), lambda _: None)

    def _beat(self, me: Registration) -> Step[None]:
        held = list(self.claims.jobs)
        taken, self._taken = self._taken, set()
        # Claims of an earlier registration lie on its claims node, until somebody clears it.
        claims_nodes = sorted({path.rpartition("/")[0] for path in held})
        reads = map(ReadChildren, claims_nodes)
        registration, *listed = yield ReadMany([ReadData(me.worker_path), *reads])
        self._is_under_way = False
        if self._taken:
            self._hurry()  # an operator took a claim while this was under way
        self._learn(me, registration)
        standing = {
            f"{claims_node}/{name}"
            for claims_node, names in zip(claims_nodes, listed, strict=True)
            for name in names or ()
        }
        for path in held:
            job = self.claims.jobs.get(path)
            if job is not None and path not in standing:
                job.stop(TAKEN if path in taken else LOST, self.clock.monotonic())


@dataclass(eq=False)
class PlanCheck:
    """Checks one plan at a time; one worker checks each plan.

    Skips a plan with entries in queues that this worker does not serve: others run these. Calls
    `finish` with the path of a plan that may have ended.
    """

    steps: Steps
    paths: Paths
    membership: Membership
    candidates: Candidates
    idle_queue: IdleQueue
    queues: Collection[str]
    clock: Clock
    finish: Callable[[str], None]
    at: float = 0.0
    _is_under_way: bool = False

    def run(self, now: float) -> None:
        self.at = now + CHECK_PERIOD_S
        is_ready = not self._is_under_way and self.membership.me is not None
        if is_ready and self.idle_queue.may_look(now):
            self._check(now)

    def _check(self, now: float) -> None:
        view = self.candidates.to_check(now, self.idle_queue.share, CHECK_FIRST_S)
        if view is None:
            return
        self._is_under_way = True

        def checked(report: Report) -> None:
            self._checked(view, now, report)

        step = _check_still(self.paths, view.number, self.queues)
        what = f"{view.path} cannot be checked"
        self.steps.start_contained(step, checked, what, instead=UNCHECKED)

    def _checked(self, view: PlanView, started: float, report: Report) -> None:
        self._is_under_way = False
        now = self.clock.monotonic()
        found = report.created or report.published or report.mended
        view.check_s = CHECK_FIRST_S if found else min(CHECK_MAX_S, 2 * view.check_s)
        view.check_at = now + max(view.check_s, CHECK_COST * (now - started))
        if report.done:
            view.finished = True
        elif not (report.waiting or found):
            # The worker that ended the last task may have died before it looked for the end. What
            # is left may be dead: whoever ends a plan finds out.
            self.finish(view.path)
        if found:
            if report.published:
                published = count(len(report.published), "task")
                logger.info("%s: the check made %s runnable", view.path, published)
            for mended in report.mended:
                logger.warning("%s: the check mended %s", view.path, mended)
            self.candidates.touched(view.number, control=False)
        for problem in report.problems[:PROBLEMS_MAX]:
            self.steps.complaints.tell(f"{view.path}: {problem}")
        if (more := len(report.problems) - PROBLEMS_MAX) > 0:
            told = f"{count(more, 'more problem')}: `zkplan plan check` lists them"
            self.steps.complaints.tell(f"{view.path}: {told}")


def _check_still(paths: Paths, plan: str, served: Collection[str]) -> Step[Report]:
    """Check the plan, unless another queue has entries: to read a huge plan costs much."""
    for queue, node in (yield from read_queues(paths.plan(plan))).items():
        if queue not in served and node.child_count:
            return UNCHECKED
    return (yield from check(paths, plan))


@dataclass(eq=False)
class IndexScan:
    """Looks for plans whose index entry was deleted by hand, and for plans that have ended."""

    steps: Steps
    membership: Membership
    candidates: Candidates
    scan: PlanScan
    clock: Clock
    #: Gets the plans that the scan finds to have ended.
    ended: Callable[[Sequence[EndedPlan]], None]
    _is_under_way: bool = False
    _rest_s: float = 0.0

    def __post_init__(self) -> None:
        #: What is indexed comes first: the scan may have a large root to list.
        self.at = self.clock.monotonic() + SCAN_PERIOD_S

    def run(self, now: float) -> None:
        self.at = now + SCAN_PERIOD_S
        if self._is_under_way or self.membership.me is None:
            return
        self._is_under_way = True

        def scanned(found: Scanned) -> None:
            self._is_under_way = False
            self.scan.learn(found)
            if found.ended:
                self.ended(found.ended)
            ended = self.clock.monotonic()
            self._rest_s = SCAN_PERIOD_S if self.scan.has_news else 2 * self._rest_s
            cost_s = SCAN_COST * (ended - now) * self.membership.share[1]
            self.at = ended + min(SAFETY_LOOK_S, max(self._rest_s, SCAN_PERIOD_S, cost_s))
            for why in found.shut:
                self.steps.complaints.tell(why)

        step = self.scan.next_slice(self.membership.share, self.candidates)
        what = "plans that the index lacks are not looked for"
        self.steps.start_contained(step, scanned, what, instead=Scanned([], []))


# ---- Scan for plans that are ready but not in the index, a few plans at a time.


#: Plans in one slice: about 20 ms of work for a server and a worker.
SLICE = 500


class PlanScan:
    """Reads the plans of one root in slices, newest first, round after round.

    Reads a plan that has ended for good only once: later, 20 000 such plans cost nothing.
    """

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        #: The version of the root's children at the last listing.
        self._seen = -1
        self._plans: set[str] = set()
        #: Plans that have ended, until they are removed.
        self.ended: dict[str, EndedPlan] = {}
        #: The plans left in this round; the next one is last.
        self._round: list[str] = []
        #: Whether the last slice found new or ended plans, or left some for the next one.
        self.has_news = True

    def next_slice(self, share: tuple[int, int], active: Container[str]) -> Step[Scanned]:
        """Put missing plans of the next slice of this share (place, number of workers) into the
        index."""
        root = yield ReadData(self._paths.root)
        if root is None:
            return Scanned([], [])
        self.has_news = root.cversion != self._seen
        if root.cversion != self._seen:
            listed = yield from list_plans(self._paths)
            # New plans come first. Plans that were removed meanwhile are simply missing.
            self._round += [plan for plan in listed if plan not in self._plans]
            self._plans = set(listed)
            self.ended = {plan: self.ended[plan] for plan in self.ended.keys() & self._plans}
            self._seen = root.cversion
        place, count = share
        chosen = list[str]()
        if not self._round:
            self._round = sorted(self._plans - self.ended.keys())
        while self._round and len(chosen) < SLICE:
            plan = self._round.pop()
            if int(plan) % count == place and plan not in active and plan not in self.ended:
                chosen.append(plan)
        self.has_news = self.has_news or bool(self._round)
        if not chosen:
            return Scanned([], [])
        return (yield from find_unindexed(self._paths, chosen))

    def learn(self, found: Scanned) -> None:
        """Take the result of a slice."""
        self.has_news = self.has_news or bool(found.ended)
        self.ended.update((plan.number, plan) for plan in found.ended)


# ---- Abandoned functions: a worker reports how many still run that it has given up.


#: Seconds between two looks. One that ends at once is not reported.
ABANDONED_PERIOD_S = 1.0


@dataclass(eq=False)
class AbandonedFunctions:
    """A maintenance duty: reports abandoned functions. They hold no claims, so without the report
    the worker would look idle. A report costs a request only if the number has changed."""

    steps: Steps
    membership: Membership
    pool: Slots
    at: float = 0.0
    _reported: tuple[Registration | None, int] = (None, 0)

    def run(self, now: float) -> None:
        self.at = now + ABANDONED_PERIOD_S
        me, said, number = self.membership.me, self.membership.said, self.pool.abandoned
        before = self._reported[1] if self._reported[0] is me else 0
        if me is None or said is None or number == before:
            return
        self._reported = me, number
        says = said._replace(id=me.worker, state=self.membership.state, abandoned=number)
        what = f"worker {me.worker} cannot report its {number} abandoned functions"
        self.steps.start_contained(report(me.paths, says), lambda done: None, what, instead=False)
