"""The authors and the operator: graphs of tasks, and scripts that add them and steer the plans."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from zkplan.errors import (
    PlanCancelled,
    PlanDrained,
    PlanError,
    PlanNotFound,
    ResultNotKept,
    TaskError,
)
from zkplan.protocol.core import plan_life as control
from zkplan.protocol.core.add import NewTask
from zkplan.protocol.features import author as authoring
from zkplan.protocol.features import remove_plan as removal
from zkplan.protocol.features import retry as retrying
from zkplan.protocol.records import OnFailure, PlanRecord, State

from . import gates, sharing, store
from .story import Meant, Violation

if TYPE_CHECKING:
    from .world import World

Script = Generator[Any, Any, None]
SHAPES = ("random", "random", "chain", "join", "fan", "diamond")


class Plan:
    """A plan as its authors mean it; `number` is known once it is created."""

    def __init__(self, name: str, on_failure: OnFailure) -> None:
        self.name = name
        self.on_failure = on_failure
        self.number = ""
        self.tasks: list[Meant] = []
        self.removed = False
        #: Somebody deletes its entry in the index by hand.
        self.loses_entry = False
        #: The size of its own limit; 0 without one.
        self.own_limit = 0
        #: How often it was retried after its end, once the faults had stopped.
        self.retries = 0


def graph(world: World, plan: Plan, size: int) -> list[Meant]:
    """A random graph of `size` tasks, in an order in which they can be added."""
    rng = world.rng
    shape = rng.choice(("chain", *SHAPES) if world.pure else SHAPES)
    tasks: list[Meant] = []
    for index in range(size):
        deps = _deps(rng, shape, tasks, index == size - 1)
        keep = rng.choice((None, None, True, False))
        task = Meant(f"{plan.name}.{len(plan.tasks) + index}", deps, rng.randint(1, 3), keep)
        task.pure = world.pure and rng.random() < 0.85
        if not task.pure and world.chance(world.mix.handlers):
            task.run_if = rng.choice(("all_finished", "all_finished", "any_failed"))
        if not task.pure and world.chance(world.mix.adds):
            task.adds = _inner(rng, task, rng.randint(1, 2), list(tasks))
        if world.gated and not (deps or task.pure or task.adds) and rng.random() < gates.GATES:
            task.gate = gates.drawn(rng)
        tasks.append(task)
        world.expect(task)
    plan.tasks += tasks
    return tasks


def _deps(rng: random.Random, shape: str, tasks: list[Meant], last: bool) -> list[Meant]:
    if not tasks:
        return []
    if shape == "chain":
        return [tasks[-1]]
    if shape == "fan":
        return [tasks[0]]
    if shape == "join":
        return list(tasks) if last else []
    if shape == "diamond":
        return tasks[1:] if last and len(tasks) > 1 else [tasks[0]]
    # The same task may be an argument twice: two edges between one pair.
    return [rng.choice(tasks) for _ in range(rng.randint(0, min(3, len(tasks))))]


def _inner(rng: random.Random, parent: Meant, size: int, others: list[Meant]) -> list[Meant]:
    """Tasks that the function of `parent` adds: on itself, on each other, on others of the plan."""
    inner: list[Meant] = []
    for index in range(size):
        deps = [rng.choice([parent, *inner, *others]) for _ in range(rng.randint(0, 2))]
        # What is not kept may be gone when it is asked for, and then the parent could never commit.
        deps = [dep for dep in deps if dep in inner or dep is parent or dep.keep]
        inner.append(Meant(f"{parent.name}+{index}", deps))
    return inner


def new_tasks(tasks: list[Meant], rng: random.Random) -> list[NewTask]:
    """What the protocol is asked to add. Dependencies among `tasks` have no numbers yet."""
    made: dict[str, NewTask] = {}
    for task in tasks:
        deps: list[str | NewTask] = [made.get(dep.name) or dep.number for dep in task.deps]
        rank = rng.choice(("5000", "4990"))
        gate = task.gate.to_bytes() if task.gate is not None else b""
        made[task.name] = NewTask(task.name, rank, task.record, deps, queue=task.lane, gate=gate)
        late = not gate and rng.random() < 0.05
        made[task.name].not_before_ms = rng.randint(1, 300) if late else 0
        made[task.name].key = task.name if task.keyed else ""
        made[task.name].takes_failures = task.takes_failures
    return list(made.values())


def create(world: World, plan: Plan, chunks: list[list[Meant]], marks: int) -> Script:
    """Create a plan, add its tasks chunk by chunk, mark it ready before chunk `marks`."""
    own = plan.own_limit
    record = PlanRecord(plan.name, plan.name, 0.0, on_failure=plan.on_failure, max_running=own)
    number = yield from authoring.create_plan(world.paths, record)
    world.created(plan, number)
    path = world.paths.plan(number)
    known = record if knows_its_plans(world.seed) else None
    first = authoring.first_task(known) if known is not None else None
    author = new_author(world, path, plan, first)
    for index, chunk in enumerate(chunks):
        if index == marks:
            yield from mark_ready(world, plan, known)
        if not (yield from add(world, author, chunk)):
            return
    if marks >= len(chunks):
        yield from mark_ready(world, plan, known)


def knows_its_plans(seed: int) -> bool:
    """Whether an author does not read what it knows of a plan that it has just created."""
    return random.Random(f"authors {seed}").random() < 0.3


def add_more(world: World, plan: Plan, size: int) -> Script:
    """A second author: adds to a plan that may run, also on tasks that may have finished."""
    author = new_author(world, world.paths.plan(plan.number), plan)
    earlier = [task for task in plan.tasks if task.acknowledged]
    tasks: list[Meant] = []
    for index in range(size):
        task = Meant(f"{plan.name}.b{len(plan.tasks)}.{index}", [], 3, True)
        if world.chance(world.mix.handlers):
            task.run_if = "all_finished"
        pool = earlier + tasks
        if pool:
            task.deps = [world.rng.choice(pool) for _ in range(world.rng.randint(0, 4))]
        tasks.append(task)
        world.expect(task)
    plan.tasks += tasks
    yield from add(world, author, tasks)


def new_author(
    world: World, path: str, plan: Plan, first_task: int | None = None
) -> authoring.Author:
    author = authoring.Author(path, first_task)
    author.cascades = plan.on_failure == "cascade"
    author._uid = f"{world.rng.getrandbits(32):08x}"  # from the seed, so that a replay is the same
    return author


def add(world: World, author: authoring.Author, tasks: list[Meant]) -> Generator[Any, Any, bool]:
    """Add `tasks`; what is acknowledged must run. Gives False where no more can be added."""
    tasks = [task for task in tasks if all(dep.number or dep in tasks for dep in task.deps)]
    new = new_tasks(tasks, world.rng)
    going_on = True
    names = [name for task in tasks if (name := store.added_by(task))]
    yield from store.writes(author.plan_path[-10:], names)
    if any(task.gate is not None for task in tasks):
        yield from gates.made_before(world)
    written = sharing.write(author, sharing.choose(world, tasks))
    try:
        yield from sharing.before_the_add(written, author.add(new))
    except ResultNotKept:
        if not any(_lost(world, author, task, i) for task in tasks for i in range(len(task.deps))):
            raise Violation("ResultNotKept was raised, yet every result can be had") from None
    except (PlanDrained, PlanNotFound, PlanCancelled):
        node = world.nodes.get(author.plan_path)
        cancelled = any(
            plan.removed and author.plan_path.endswith(plan.number) for plan in world.plans
        )
        if node is not None and "add-count" in node.children and not cancelled:
            raise
        going_on = False
    for task, made in zip(tasks, new, strict=True):
        if made.number:
            if made.number != task.number:
                raise Violation(
                    f"S4 {task.name} is acknowledged as {made.number}, it is {task.path}"
                )
            task.acknowledged = True
    return going_on


def _lost(world: World, author: authoring.Author, task: Meant, position: int) -> bool:
    """Whether an argument is not here, and neither its task nor an outcome can give it."""
    dep = task.deps[position]
    kept = f"{author.plan_path}/results/{dep.number}" in world.nodes
    here = bool(task.path) and f"{task.path}/arg-{position:010d}" in world.nodes
    return bool(dep.number) and not dep.alive and not kept and not here


# The operator.


def change_states(world: World, plan: Plan, *states: State) -> Script:
    for state in states:
        try:
            yield from control.change_state(world.paths.plan(plan.number), state)
        except PlanError:
            return  # not ready yet, done, cancelled or removed: a clear refusal


def mark_ready(world: World, plan: Plan, record: PlanRecord | None = None) -> Script:
    try:
        yield from control.mark_ready(world.paths.plan(plan.number), record)
    except (PlanCancelled, PlanNotFound):
        if not plan.removed:
            raise


def retry(world: World, plan: Plan, task: str) -> Script:
    try:
        yield from retrying.retry(world.paths.plan(plan.number), task)
    except TaskError:
        if not world.auditor.tasks[f"{world.paths.plan(plan.number)}/task-{task}"].cut:
            raise


def remove(world: World, plan: Plan) -> Script:
    try:
        yield from removal.remove(world.paths.plan(plan.number))
    except PlanNotFound:
        if not world.expires:
            raise  # nobody else removes it
