"""A worker of the simulation: the real steps, begun in any order that a real worker may take.

What a worker does next is chosen by chance among what there is to do, and several of its steps are
under way at once. Between two of its requests anything may happen to it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from zkplan.errors import PlanCancelled, ResultNotKept, ServerFull
from zkplan.protocol.core import claim as claiming
from zkplan.protocol.core import commit as committing
from zkplan.protocol.core import end_claims as ending
from zkplan.protocol.core import plans_and_queues as look
from zkplan.protocol.core import publish, wide_delivery
from zkplan.protocol.core import workers as membership
from zkplan.protocol.core.claim import mark_started, write_log
from zkplan.protocol.core.commit_part import Part
from zkplan.protocol.core.load import FirstReads, Loaded, Reading
from zkplan.protocol.requests import ReadData, Step
from zkplan.protocol.transactions import NO_ALLOWANCE, Allowance, Claim, Dependent, Registration

from . import added, duties, gates, maintenance, store
from .limits import choose_entries
from .loads import inherited, judge_arguments, load_judged, read_ahead
from .network import Client
from .parts import part_of, tells
from .queues import draw_served, served
from .runs import run_ahead
from .story import FAILED, Meant, name_in, outcomes_in

if TYPE_CHECKING:
    from .world import World

Script = Generator[Any, Any, None]
#: Steps of one worker under way at once.
FIBERS_MAX = 3


class Worker:
    """One process; `client` is its connection, `me` its registration as far as it knows."""

    def __init__(self, world: World, name: str, client: Client) -> None:
        self.world = world
        self.name = name
        self.client = client
        self.slots = world.rng.randint(1, 4)
        self._queues = draw_served(world.queues)
        self.me: Registration | None = None
        self.stopping = False
        self.versions: dict[str, int] = {}
        self.to_load: list[Claim] = []
        self.to_reload: list[Part] = []
        self.finished: list[Part] = []
        self.to_fail: list[tuple[Claim, Meant, bytes]] = []
        self.old_pending: list[str] = []
        #: What a full server had no room to publish.
        self.owed: list[tuple[list[Dependent], str]] = []
        #: Tasks that have run and whose blobs are being written.
        self.writing = 0
        self._registering = False
        self._looking = False
        self._lives = count()
        self._uids: Iterator[str] = map(str, count())

    @property
    def queues(self) -> list[str]:  # the preferred one first
        return served(self.world, self._queues)

    @property
    def held(self) -> int:
        waiting = len(self.to_load) + len(self.to_reload) + len(self.to_fail)
        return waiting + self.writing + len(self.finished)

    # What there is to do.

    def start_something(self) -> bool:
        """Begin one step; False where there is nothing to do."""
        if len(self.client.fibers) >= FIBERS_MAX:
            return False
        options = self._options()
        if not options:
            return False
        self.world.rng.choice(options)()
        return True

    def _start(self, kind: str, script: Step[Any], under: dict[str, str] | None = None) -> None:
        self.world.network.start(self.client, kind, script, under or {})

    def _start_on(self, plan: str, kind: str, script: Callable[[World, str], Step[Any]]) -> None:
        self._start(kind, script(self.world, plan))

    def _options(self) -> list[Callable[[], None]]:
        world = self.world
        if self.me is None:
            return [] if self._registering else [self._begin_register]
        options: list[Callable[[], None]] = []
        if self.to_load:
            options.append(self._begin_load)
        if self.to_reload:
            options.append(self._begin_reload)
        if self.finished:
            options += (self._begin_commit, self._begin_commit)
        if self.to_fail:
            options.append(self._begin_fail)
        if self.owed:
            options.append(self._begin_publish)
        if self.me.worker_path not in world.nodes:
            options.append(lambda: self._start("heartbeat", self._heartbeat()))
        if self.stopping:
            if not options and not self.client.fibers:
                options.append(lambda: self._start("unregister", self._unregister()))
            return options
        if not self._looking and self.held < self.slots:
            options += [
                partial(self._begin_look, plan)
                for plan in duties.plans_to_look_at(world, self.queues)
            ]
        options += self._duties()
        if world.chance(world.mix.hand_back) and (self.to_load or self.finished):
            options.append(self._begin_hand_back)
        if self.finished and world.chance(world.mix.logs):
            options.append(
                lambda: self._start("log", write_log(self.finished[0].loaded.claim, b"progress"))
            )
        return options

    def _duties(self) -> list[Callable[[], None]]:
        world = self.world
        options: list[Callable[[], None]] = []
        if duties.vacant(world) or world.chance(world.mix.spurious):
            options.append(lambda: self._start("clear", maintenance.clear(world)))
        if duties.due(world):
            options.append(lambda: self._start("promote", maintenance.promote(world)))
        if world.gated and gates.is_one_to_open(world):
            options.append(lambda: self._start("gates", gates.keep(world)))
        for kind, script, plans in maintenance.of_plans(world):
            options += [partial(self._start_on, plan, kind, script) for plan in plans]
        return options

    # Beginnings: they take what they work on out of the worker's lists at once.

    def _begin_register(self) -> None:
        self._registering = True
        self._start("register", self._register())

    def _begin_look(self, plan: str) -> None:
        self._looking = True
        self._start("claim", self._claim(plan))

    def _begin_load(self) -> None:
        claims, self.to_load = self.to_load, []
        self._start("load", self._load(claims))

    def _begin_reload(self) -> None:
        parts, self.to_reload = self.to_reload, []
        self._start("load", self._reload(parts))

    def _begin_commit(self) -> None:
        size = self.world.rng.randint(1, len(self.finished))
        parts, self.finished = self.finished[:size], self.finished[size:]
        under = {part.loaded.claim.task_path: part.loaded.claim.path for part in parts}
        self._start("commit", self._commit(parts), under)

    def _begin_publish(self) -> None:
        full, pending = self.owed.pop()
        self._start("publish", self._publish(full, pending, NO_ALLOWANCE))

    def _begin_fail(self) -> None:
        claim, task, decided = self.to_fail.pop()
        self._start("fail", self._fail(claim, task, decided))

    def _begin_hand_back(self) -> None:
        if self.to_load:
            claims, self.to_load = self.to_load, []
        else:
            claims = [self.finished.pop().loaded.claim]
        if self.world.rng.random() < 0.3:  # their tasks may not run yet
            due_ms = self.world.now + self.world.rng.randint(1, 100)
            for claim in claims:
                self._start("hand back", ending.postpone(claim, due_ms, self.world.paths.delayed))
            return
        self._start("hand back", ending.hand_back(claims))

    # Scripts: the steps of the protocol in order.

    def _register(self) -> Script:
        name = f"{self.name}.{next(self._lives)}"
        self.me = yield from membership.register(self.world.paths, name, b"", self._uids)
        self._registering = False

    def _unregister(self) -> Script:
        assert self.me is not None
        yield from membership.unregister(self.me)
        self.world.leave(self)

    def _heartbeat(self) -> Script:
        me = self.me
        if me is not None and (yield ReadData(me.worker_path)) is None and self.me is me:
            self.me = None

    def _lost(self, me: Registration) -> None:
        self.me = None if self.me is me else self.me

    def _allowance(self) -> Allowance:
        direct = self.world.mix.claims_directly and not self.stopping
        free = max(0, self.slots - self.held) if direct else 0
        return Allowance(free, dict(self.versions), self.queues)

    def _claim(self, plan: str) -> Script:
        world, plan_path = self.world, self.world.paths.plan(plan)
        seen = yield from look.look(plan_path, queues=self.queues)
        me = self._claims_with()
        if seen.state != "running":
            self.versions.pop(plan_path, None)
        elif me is not None and any(names for _, names in seen.listed):
            self.versions[plan_path] = seen.version
            most = max(1, self.slots - self.held)
            which = yield from choose_entries(world, plan, seen, most)
            taken = yield from claiming.claim(me, plan, seen.version, *which)
            if taken.plan_changed:
                self.versions.pop(plan_path, None)
            if taken.worker_gone:
                self._lost(me)
            yield from self._take_on(taken.claims, taken.read)
        self._looking = False

    def _claims_with(self) -> Registration | None:
        return self.me

    def _records_before(self, parts: list[Part]) -> list[str]:
        return self.old_pending

    def _take_on(self, claims: list[Claim], read: FirstReads | None) -> Script:
        """Load at once what was read right behind its claim; the rest whenever the worker likes."""
        if claims and read is not None:
            yield from self._load(claims, read)
        else:
            self.to_load += claims

    def _load(self, claims: list[Claim], read: FirstReads | None = None) -> Script:
        loaded = yield from load_judged(self.world, self.client, claims, read)
        for item in loaded:
            if item.claim.n > item.claim.a and item.result is None:
                if not (yield from mark_started(item.claim)):
                    continue
                item.others.append(f"started-{item.claim.n}")
            task = self.world.names[name_in(item.record)]
            if item.result is None and not (
                yield from store.opened(self.world, item, task, item.claim.path)
            ):
                self.to_fail.append((item.claim, task, b""))  # its plan was removed, with its blobs
            else:
                self._run(item)

    def _reload(self, parts: list[Part]) -> Script:
        claims = [part.loaded.claim for part in parts]
        again = yield from load_judged(self.world, self.client, claims)
        for part in parts:
            for item in (each for each in again if each.claim is part.loaded.claim):
                part.loaded = item
                self.finished.append(part)

    def _run(self, item: Loaded) -> None:
        """The function: takes no time of its own, for the commit may begin any time later."""
        task = self.world.names[name_in(item.record)]
        claim = item.claim
        if item.result is None:
            self.world.merging.printing.ran(claim)
        if item.result is not None:
            # Delivery had begun: the outcome is fixed, and the function is not run again.
            if item.result.startswith(FAILED):
                self._hold(item, task, item.result)
            else:
                self.finished.append(part_of(item, task, item.result))
        elif claim.a >= task.attempts or self.world.chance(self.world.mix.failing):
            self._hold(item, task, b"")
        elif (failure := task.outcome(outcomes_in(item))).startswith(FAILED):
            self._hold(item, task, failure)
        else:
            outcome = store.sealed(task, f"{claim.task}.{claim.n}", task.outcome(outcomes_in(item)))
            part = part_of(item, task, outcome)
            if task.adds:
                part.adds = self.world.new_tasks(task.adds)
            names = store.blobs_of(task, outcome)
            if not names:
                self.finished.append(part)
                return
            self.writing += 1
            write = store.writes(claim.plan, names)
            self._start("write", store.write_first(write, partial(self._written, part)))

    def _hold(self, item: Loaded, task: Meant, decided: bytes) -> None:
        """It fails, and stays where it fails for good. Its dependents may get its failure."""
        claim, cascades = item.claim, self.world.cascades(item.claim.plan)
        if (decided or claim.a + 1 >= task.attempts) and (cascades or tells(item)):
            part = part_of(item, task, decided or task.failure)
            part.holds, part.cascades = True, cascades
            self.finished.append(part)
        else:
            self.to_fail.append((claim, task, decided))

    def _written(self, part: Part) -> None:
        self.writing -= 1
        self.finished.append(part)

    def _commit(self, parts: list[Part]) -> Script:
        world = self.world
        narrow = []
        for part in parts:
            me = self.me
            if me is None:
                self.finished.append(part)
            elif not part.fits or world.is_wide(part):
                yield from self._deliver_wide(me, part)
            else:
                narrow.append(part)
        me = self.me
        if me is None:
            self.finished += narrow
            return
        pending_records, self.old_pending = self._records_before(narrow), []
        yield from run_ahead(world, narrow, self.versions, self.queues)
        ahead = yield from read_ahead(self.world, narrow)
        report = yield from committing.commit(me, narrow, pending_records, self._allowance())
        for claim in report.inherited:
            self._inherit(claim, ahead, report.done)
        self.old_pending += report.old_pending
        self.to_reload += report.stale
        self.to_reload += [part for part, _ in report.no_room]
        for part, error in report.poison:
            if not isinstance(error, (PlanCancelled, ResultNotKept)):
                raise error
            self._fail_later(part)
        if report.worker_gone:
            self._lost(me)
        if report.complete:
            yield from self._publish(report.complete, report.pending, self._allowance())
        elif report.pending:
            self.old_pending.append(report.pending)
        for part in (*report.done, *report.fenced):
            if part.may_end_plan:
                yield from maintenance.finish(self.world, part.loaded.claim.plan)

    def _publish(self, full: list[Dependent], pending: str, allowance: Allowance) -> Script:
        me = self.me
        if me is None:
            return  # a clearer settles the pending record
        try:
            published = yield from publish.publish(me, full, pending, allowance)
        except ServerFull:
            self.owed.append((full, pending))
            return
        yield from self._take_on(published.claims, published.read)

    def _inherit(self, claim: Claim, ahead: dict[str, Reading], done: list[Part]) -> None:
        item = inherited(claim, ahead.get(claim.task_path), done)
        if item is None:
            self.to_load.append(claim)
            return
        judge_arguments(self.world, item)
        self._run(item)

    def _deliver_wide(self, me: Registration, part: Part) -> Script:
        try:
            # `to_load` is another list whenever its claims are loaded.
            done = yield from wide_delivery.deliver_wide(
                *(me, part, self._allowance, lambda claims: self.to_load.extend(claims)),
                lambda *owed: self.owed.append(owed),
                added.judge_lost,
            )
        except (ServerFull, wide_delivery.WorkerGone) as error:
            if isinstance(error, wide_delivery.WorkerGone):
                self._lost(me)
            self.to_reload.append(part)
        except (PlanCancelled, ResultNotKept):
            self._fail_later(part)
        else:
            if done:
                yield from maintenance.finish(self.world, part.loaded.claim.plan)

    def _fail_later(self, part: Part) -> None:
        task = self.world.names[name_in(part.loaded.record)]
        self.to_fail.append((part.loaded.claim, task, b""))

    def _fail(self, claim: Claim, task: Meant, decided: bytes) -> Script:
        """`decided`: an operator has decided that it fails for good."""
        world = self.world
        if not decided and claim.a + 1 < task.attempts:
            due = world.now + world.rng.randint(0, 20) if world.chance(0.5) else None
            yield from ending.fail_again(claim, b"failed", due, world.paths.delayed)
        else:
            failure, dead = decided or task.failure, task.dead(claim, self.name)
            yield from ending.fail_for_good(claim, failure, dead, has_result=bool(decided))
