"""One seeded run: authors, workers, an operator and faults, until everything has drained.

The seed decides everything: which faults and features the run has, the graphs, and at each step
whose request the server takes next. In the first part faults happen; then they stop, and within a
bounded number of steps every plan must be done with nothing left behind (L3).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

from zkplan.embedded import operations as server
from zkplan.protocol.core.add import NewTask
from zkplan.protocol.core.commit_part import Part
from zkplan.protocol.core.workers import sign_off
from zkplan.protocol.layout import Paths
from zkplan.protocol.records import Share, control_from_bytes

from . import (
    authors,
    by_hand,
    decisions,
    expiry,
    gates,
    keyed,
    leases,
    limits,
    queues,
    reopening,
    scheduled,
    store,
)
from .auditor import DECIDES, REMOVES
from .authors import Plan
from .ending import judge
from .merging import Merging
from .mix import NARROW, draw_mix, replaced
from .network import CALM, Client, Network
from .sealing import SHARE, Sealing
from .shares import SHARES
from .shares import change as change_share
from .story import Meant, Violation
from .worker import Worker

ROOT = "/z"
#: Faults happen during so many scheduler steps at most.
STORM_STEPS = 500
#: How often a slow actor's request waits on when its turn has come, as if the actor were stopped.
SLOWNESS = 0.97
#: The share of runs whose workers have supervisors.
SUPERVISED = 0.4
#: The share of runs without losses in which somebody waits for the plans.
AWAITED = 0.3
#: The share of runs with pure tasks.
PURE = 0.3
#: After the faults everything must drain in so many steps.
DRAIN_STEPS = 6000
#: In how many runs an access list protects histories for a while.
SHUT = 0.03


class World:
    """One run. `note` receives a line per event."""

    #: Whether a run may have schedules, retention, and deletions by hand.
    has_all = True

    def __init__(self, seed: int, note: Callable[[str], None] | None = None) -> None:
        self.rng = rng = random.Random(seed)
        self.network = Network(rng, ROOT, note)
        self.paths = Paths(ROOT)
        self.network.sealing = self._sealing(seed)
        self.auditor = leases.Auditor(
            self.network.tree,
            ROOT,
            self.network.blobs,
            self.network.sealing,
            lambda number, data: scheduled.created(self, number, data),
        )
        self.auditor.served, self.auditor.now = partial(leases.served, self), lambda: self.now
        history = self.auditor.history
        history.shut, history.is_calm = self.network.shut, lambda: self.network.faults is CALM
        self.auditor.taken_over = partial(keyed.taken_over, self)
        self.nodes, self.names = self.auditor.nodes, self.auditor.names
        self.mix = draw_mix(rng)
        if random.Random(f"shut {seed}").random() < SHUT:
            # As with a full server, a late copy is refused for the same reason as the first.
            faults = self.mix.faults._replace(shut=0.3, late=0.0)
            self.mix = self.mix._replace(faults=faults)
        #: Whether the workers have supervisors, which sign off those that crash.
        self.supervised = random.Random(f"supervised {seed}").random() < SUPERVISED
        #: Whether somebody looks now and then whether a plan is done, as a waiter does. A crash may
        #: leave that to be found; otherwise whoever ends the last task ends the plan.
        lost = self.mix.crashes + self.mix.author_crashes + self.mix.removes
        #: Whether most tasks are pure, so that workers run chains of them ahead.
        self.pure = random.Random(f"pure {seed}").random() < PURE
        self.awaited = bool(lost) or random.Random(f"awaited {seed}").random() < AWAITED
        drawn = random.Random(f"queues {seed}")
        #: Draw the queues of tasks and workers, and limits, in a run that has any.
        self.queues = drawn if drawn.random() < queues.SHARE else None
        self.limits, self.leases = limits.drawn(seed), leases.drawn(seed)
        self.lease_count, self.lease_queues = 0, dict[str, list[str]]()
        self.has_store = random.Random(f"store {seed}").random() < store.SHARE
        self.gated = random.Random(f"gates {seed}").random() < gates.SHARE
        self.merging = Merging(self, seed)
        self.by_hand = by_hand.drawn(seed)
        self.plans: list[Plan] = []
        self.workers: list[Worker] = []
        self.all_workers: list[Worker] = []
        self.clients: list[Client] = []
        self.dying: list[int] = []
        self.seed, self.now = seed, 0
        self.pending, self.writers = list[Callable[[], None]](), list[Client]()
        self.calm = self.expires = False
        self.slow, self._names = set[str](), 0
        self._set_up()

    def _sealing(self, seed: int) -> Sealing | None:
        """What seals every client's steps, in a run with keys."""
        if random.Random(f"sealing {seed}").random() < SHARE:
            return Sealing(seed, ROOT, self.network.read_now)
        return None

    def chance(self, probability: float) -> bool:
        return probability > 0.0 and not self.calm and self.rng.random() < probability

    def opened(self, path: str) -> bytes | None:
        """The data of a znode as a holder of the keys reads them; None where it is not."""
        if self.network.sealing is not None:
            return self.network.sealing.opened(path)
        node = self.nodes.get(path)
        return None if node is None else node.data

    def expect(self, task: Meant) -> None:
        for each in (task, *task.adds):
            if self.queues is not None:
                each.queue = queues.draw_queue(self.queues)
            each.limits = each.limits or limits.draw(self, each)
            each.stored = self.has_store and store.is_chosen(each)
            self.auditor.expect(each)

    def created(self, plan: Plan, number: str) -> None:
        plan.number = number

    def new_tasks(self, tasks: list[Meant]) -> list[NewTask]:
        return authors.new_tasks(tasks, self.rng)

    def is_wide(self, part: Part) -> bool:
        if not self.mix.wide:
            return False
        edges = len(part.loaded.edges)
        wide = edges >= self.mix.wide or not edges or part.loaded.result is not None
        return wide and self.rng.random() < 0.7

    def cascades(self, number: str) -> bool:
        return any(plan.number == number and plan.on_failure == "cascade" for plan in self.plans)

    def leave(self, worker: Worker) -> None:
        """A worker that stopped: its process ends, another comes."""
        self._end(worker.client)
        self.workers.remove(worker)
        self.network.close(worker.client.session)
        self._new_worker()

    def _set_up(self) -> None:
        rng, paths = self.rng, self.paths
        for path in (ROOT, paths.workers, paths.claims, paths.delayed, paths.active):
            self.network.tree.apply(server.Create(path))
        if self.gated:
            gates.set_up(self)
        limits.set_up(self)
        self.network.observer = self.auditor
        self.network.faults = self.mix.faults if any(self.mix.faults) else CALM
        self.network.split_reads = rng.random() < 0.1
        for _ in range(rng.choice((1, 1, 1, 2))):
            self._new_plan()
        keyed.join_in(self)
        if self.has_all:
            scheduled.set_up(self)
        for _ in range(rng.choice((1, 2, 2, 3))):
            self._new_worker()
        self._plan_the_operator()
        if self.has_all:
            expiry.set_up(self)
            by_hand.set_up(self)

    def _new_plan(self) -> None:
        rng = self.rng
        plan = Plan(f"p{len(self.plans)}", rng.choice(("hold", "hold", "cascade")))
        self.plans.append(plan)
        size = rng.choice((1, 2, 2, 3, 3, 4, 5, 6, 8, 12))
        plan.loses_entry = rng.random() < by_hand.LOSES_ENTRY
        plan.own_limit = limits.of_plan(self)
        chunks = [authors.graph(self, plan, size)]
        if rng.random() < 0.2:
            chunks.append(authors.graph(self, plan, 2))
        marks = rng.randint(0, len(chunks))
        self.write(plan, authors.create(self, plan, chunks, marks))

    def write(self, plan: Plan, script: authors.Script) -> None:
        """An author of that plan, on a connection of its own."""
        client = self._connect("author")
        self.writers.append(client)
        self.network.start(client, f"author {plan.name}", script, {})

    def _plan_the_operator(self) -> None:
        mix = self.mix
        for count, act in (
            (mix.pauses, self._pause),
            (mix.more, self._add_more),
            (mix.removes, self._remove),
            (mix.retries, self._retry),
            (mix.decisions, self._decide),
            (mix.expiries, self._expire),
            (mix.crashes, self._crash),
            (mix.author_crashes, self._crash_author),
            (mix.leaves, self._stop),
            (limits.CHANGES * bool(self.limits), lambda: limits.change(self)),
        ):
            self.pending += [act] * count
        self.rng.shuffle(self.pending)

    def _connect(self, kind: str) -> Client:
        self._names += 1
        client = self.network.connect(f"{kind}{self._names}")
        if self.chance(self.mix.slow):
            self.slow.add(client.name)
        self.clients.append(client)
        return client

    def _new_worker(self) -> None:
        client = self._connect("w")
        self.workers.append(leases.new_worker(self, client.name, client))
        self.all_workers.append(self.workers[-1])

    def _end(self, client: Client) -> None:
        self.clients.remove(client)

    # What happens to the world.
    def _known(self) -> list[Plan]:
        return [plan for plan in self.plans if plan.number and not plan.removed]

    def operate(self, kind: str, script: authors.Script) -> None:
        self.start("operator", kind, script)

    def start(self, name: str, kind: str, script: Any) -> None:
        """Run a script on a connection of its own."""
        self.network.start(self._connect(name), kind, script, {})

    def _pause(self) -> None:
        if plans := self._known():
            plan = self.rng.choice(plans)
            self.operate("pause", authors.change_states(self, plan, "paused", "running"))
            path, wanted = self.paths.plan(plan.number), [Share(2), Share(None, 7), Share(3)]
            self.start("operator", SHARES, change_share(path, wanted))

    def _add_more(self) -> None:
        if plans := self._known():
            plan = self.rng.choice(plans)
            self.write(plan, authors.add_more(self, plan, self.rng.randint(1, 4)))

    def _remove(self) -> None:
        if plans := self._known():
            plan = self.rng.choice(plans)
            plan.removed = True
            self.operate(REMOVES, authors.remove(self, plan))

    def _retry(self) -> None:
        for plan in self._known():
            dead = self.nodes.get(f"{ROOT}/plan-{plan.number}/dead")
            if plan.on_failure == "cascade":
                if dead is not None and dead.children:
                    for _ in range(self.rng.randint(1, 2)):
                        self.operate(reopening.REOPENS, reopening.retry(self, plan))
                continue
            for number in sorted(dead.children) if dead is not None else ():
                # Two operators at once: both have seen the same dead letter.
                for _ in range(self.rng.randint(1, 2)):
                    self.operate("retry", authors.retry(self, plan, number))

    def _decide(self) -> None:
        """An operator decides about a task, or moves it; now and then two decide at once."""
        for plan in self._known():
            tasks = [task for task in plan.tasks if task.alive]
            if not tasks or "ready" not in self.nodes[self.paths.plan(plan.number)].children:
                continue
            task = self.rng.choice(tasks)
            for _ in range(self.rng.choice((1, 1, 2))):
                if self.rng.random() < 0.6:
                    self.operate(DECIDES, decisions.decide(self, plan, task))
                else:
                    self.operate("move", decisions.move(self, plan, task))

    def _expire(self) -> None:
        if self.workers:
            client = self.rng.choice(self.workers).client
            self._say(f"the session of {client.name} expires")
            self.network.expire(client)

    def _crash(self) -> None:
        if self.workers:
            worker = self.rng.choice(self.workers)
            self._say(f"{worker.name} crashes")
            self.dying.append(self.network.crash(worker.client))
            self.workers.remove(worker)
            self._end(worker.client)
            if worker.me is not None and self.supervised:
                # Its session is still open, and what it sent may still arrive.
                self.start("supervisor", "sign off", sign_off(self.paths, worker.me.worker))
            self._new_worker()

    def _crash_author(self) -> None:
        writers = [client for client in self.writers if client.fibers]
        if writers:
            client = self.rng.choice(writers)
            self._say(f"{client.name} crashes")
            self.dying.append(self.network.crash(client))
            self._end(client)

    def _stop(self) -> None:
        if self.workers:
            self.rng.choice(self.workers).stopping = True

    def _say(self, text: str) -> None:
        if self.network.note:
            self.network.note(text)

    # Running.

    def run(self) -> None:
        """Run to the end; raises Violation."""
        with replaced((*(NARROW if self.mix.narrow else ()), *self.merging.patches)):
            self._run()

    def _run(self) -> None:
        for _ in range(STORM_STEPS):
            if not self._step() and not self.pending:
                break
            if self.gated:
                gates.storm(self)
            self.merging.storm()
        self._say("the faults stop")
        self.calm = True
        self.network.faults = CALM
        self.pending.clear()
        for session in self.dying:
            self.network.close(session)
        self.dying.clear()
        self._drain()

    def _drain(self) -> None:
        """The faults have stopped: go on until nothing is left to do."""
        for _ in range(DRAIN_STEPS):
            if not self._step() and not self._help():
                judge(self)
                return
        raise Violation(f"L3 after {DRAIN_STEPS} steps without faults something still goes on")

    def _step(self) -> bool:
        """One event; False where nothing can happen."""
        self.now += 1
        rng = self.rng
        if self.pending and rng.random() < 0.05:
            self.pending.pop()()
        chance = rng.random()
        if chance < 0.1:
            if self.network.late and (self.calm or chance < self.mix.lateness):
                self.network.deliver_late(rng.randrange(len(self.network.late)))
                return True
            if self.dying and chance < 0.05:
                self.network.close(self.dying.pop())
                return True
        if chance > 0.7 and self._start_something():
            return True
        busy = [client for client in self.clients if client.queue]
        if busy:
            client = rng.choice(busy)
            if client.name in self.slow and rng.random() < SLOWNESS and not self.calm:
                return True
            self.network.deliver(client)
            return True
        if self._start_something():
            return True
        if self.network.late:
            self.network.deliver_late(rng.randrange(len(self.network.late)))
            return True
        if self.dying:
            self.network.close(self.dying.pop())
            return True
        return False

    def _start_something(self) -> bool:
        workers = self.workers
        if not workers:
            return False
        first = self.rng.randrange(len(workers))
        return any(
            workers[(first + index) % len(workers)].start_something()
            for index in range(len(workers))
        )

    def _help(self) -> bool:
        """Nothing goes on: time passes, and the operator does what is left to people."""
        if later := self.nodes[f"{ROOT}/delayed"].children:
            self.now = max(self.now, min(int(name[:13]) for name in later))
            return True
        if (self.gated and gates.help_on(self)) or limits.help_on(self) or leases.help_on(self):
            return True
        for plan in self._known():
            path = self.paths.plan(plan.number)
            node = self.nodes.get(path)
            if node is None or "done" in node.children:
                if reopening.help_on(self, plan):
                    return True
                continue
            if "ready" not in node.children:
                self.operate("mark ready", authors.mark_ready(self, plan))
                return True
            if control_from_bytes(self.opened(f"{path}/ready") or b"") == "paused":
                self.operate("resume", authors.change_states(self, plan, "running"))
                return True
            dead = self.nodes.get(f"{path}/dead") if plan.on_failure == "hold" else None
            for number in sorted(dead.children) if dead is not None else ():
                task = self.auditor.tasks.get(f"{path}/task-{number}")
                if task is None or not task.alive:
                    continue
                if task.cut:
                    self.operate(DECIDES, decisions.decide(self, plan, task))
                else:
                    self.operate("retry", authors.retry(self, plan, number))
                return True
        return False


def run(seed: int, note: Callable[[str], None] | None = None) -> None:
    """Run one seed; raises Violation."""
    World(seed, note).run()
