"""Updates of the simulation: what services hold is completed together with adds and decisions."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from zkplan.errors import PayloadUndecodable, PlanError, ServerFull, TaskError
from zkplan.protocol.core.commit_part import Part
from zkplan.protocol.features.task_place import find_place
from zkplan.protocol.features.update import Mark, Update
from zkplan.protocol.features.update_changes import Change, Verb, version_of
from zkplan.protocol.layout import rank_of, update_mark
from zkplan.protocol.transactions import Registration

from . import maintenance, reopening, store
from .authors import Plan
from .intents import Intent
from .story import FAILED, SKIPPED, Meant, Violation

if TYPE_CHECKING:
    from .leases import Service
    from .world import World

Script = Generator[Any, Any, None]
#: The share of runs with leases that have updates, and of the commits there that are updates.
SHARE, UPDATED = 0.5, 0.5


def drawn(world: World, name: str) -> random.Random | None:
    """What draws updates, in a run that has any."""
    has_any = random.Random(f"updates {world.seed}").random() < SHARE
    return random.Random(f"updates {world.seed} {name}") if has_any else None


def begin(service: Service, rng: random.Random) -> bool:
    """Update some of what the service holds; False where it holds nothing for that."""
    world, first = service.world, service.finished[0].loaded.claim
    plan = next((each for each in world.plans if each.number == first.plan), None)
    # A service may have taken on its own lease: it holds a claim twice then. An update names each
    # task once, and the other part is committed or fenced as any.
    fit = (part for part in service.finished if _fits(world, part, first.plan))
    parts = list({part.loaded.claim.path: part for part in fit}.values())
    if plan is None or not parts or service.me is None:
        return False
    parts = parts[: rng.randint(1, len(parts))]
    service.finished = [part for part in service.finished if part not in parts]
    under = {part.loaded.claim.task_path: part.loaded.claim.path for part in parts}
    service.update(_update(service, service.me, plan, parts, rng), under)
    return True


def _fits(world: World, part: Part, plan: str) -> bool:
    of_plan = part.loaded.claim.plan == plan and part.loaded.result is None
    return of_plan and not (part.adds or part.run or world.is_wide(part))


def _update(
    service: Service, me: Registration, plan: Plan, parts: list[Part], rng: random.Random
) -> Script:
    world, path = service.world, service.world.paths.plan(plan.number)
    intent = Intent({part.loaded.claim.path for part in parts})
    changes = [Change(part.loaded.claim.task, "complete", part=part) for part in parts]
    held = {part.loaded.claim.task for part in parts}
    tasks = [task for task in plan.tasks if task.alive and task.number not in held]
    for task in rng.sample(tasks, min(len(tasks), rng.randint(0, 2))):
        change = yield from _change(world, plan, task, intent, rng)
        changes += [change] if change is not None else []
    adds = _adds(world, plan, intent, rng)
    yield from store.writes(plan.number, [n for task in adds if (n := store.added_by(task))])
    call = f"{world.seed}-{rng.getrandbits(32):08x}"
    mark = Mark(update_mark(path, call), call, "")
    world.auditor.intents[mark.path] = intent
    new = world.new_tasks(adds)
    for each in new:
        each.not_before_ms = 0
    try:
        updated = yield from Update(me, plan.number, mark, changes, new).apply()
        applied = not (updated.against or updated.worker_gone)
    except (PlanError, ServerFull):
        applied = False
    is_decided = {sealed in task.accepted for sealed, task in intent.decided.items()}
    if applied != intent.applied or not is_decided <= {applied}:
        raise Violation(f"S24 {mark.path} is answered with {applied}, and is not so")
    if not applied:
        service.to_reload += parts
        return
    for task, made in zip(adds, new, strict=True):
        if made.number != task.number:
            raise Violation(f"S24 {task.name} is told as {made.number}, it is {task.path}")
        task.acknowledged = True
    yield from reopening.tell(world, plan, adds)
    if updated.complete or updated.pending:
        yield from service.publish_for(updated.complete, updated.pending)
    for part in parts:
        if part.may_end_plan:
            yield from maintenance.finish(world, plan.number)


def _change(
    world: World, plan: Plan, task: Meant, intent: Intent, rng: random.Random
) -> Generator[Any, Any, Change | None]:
    try:
        place = yield from find_place(world.paths, plan.number, task.number)
    except (PlanError, TaskError, PayloadUndecodable):
        return None
    if place is None:
        return None
    if place.cascaded:
        return Change(task.number, "check", version_of(place))
    verbs: tuple[Verb, ...] = ("skip", "check", "check")
    if place.state in ("dead", "delayed"):
        verbs += ("retry",)
    if place.state not in ("dead", "running", "gated"):
        verbs += ("move",)
    if place.state != "dead":
        verbs += ("cancel",)
    change = Change(task.number, rng.choice(verbs), version_of(place))
    call = f"{rng.getrandbits(32):08x}".encode()
    if change.verb in ("skip", "cancel"):
        change.sealed = (SKIPPED if change.verb == "skip" else FAILED + b"by ") + call
        task.decisions.append(change.sealed)
        intent.decided[change.sealed] = task
    elif change.verb == "move":
        change.rank = rank_of(rng.randint(-3, 3))
    elif change.verb == "check":
        intent.demands[task.path] = change.expect
    return change


def _adds(world: World, plan: Plan, intent: Intent, rng: random.Random) -> list[Meant]:
    earlier = [task for task in plan.tasks if task.acknowledged]
    tasks: list[Meant] = []
    for index in range(rng.randint(0, 2)):
        task = Meant(f"{plan.name}.u{len(plan.tasks)}.{index}", [], 3, True)
        pool = earlier + tasks
        task.deps = [rng.choice(pool) for _ in range(rng.randint(0, 2))] if pool else []
        tasks.append(task)
        world.expect(task)
        intent.added.add(task.record)
    plan.tasks += tasks
    return tasks
