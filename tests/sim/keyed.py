"""Keys in the simulation: several authors create one plan, and add its tasks, under the same keys.

S12 is judged here, after every transaction that may break it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from zkplan.embedded.tree import Tree
from zkplan.protocol import keys
from zkplan.protocol.records import PlanRecord, control_from_bytes
from zkplan.protocol.requests import Create, Delete, Op

from . import auditor, authors
from .network import Fiber
from .sealing import Sealing
from .store import Blobs
from .story import Violation

if TYPE_CHECKING:
    from .world import World

#: The share of runs with such plans, and how many authors have the same key.
SHARE, AUTHORS = 0.3, 3
KEY = "nightly"


class Auditor(auditor.Auditor):
    """Judges the keys of plans, too. `created` is told of each plan with a key."""

    def __init__(
        self,
        tree: Tree,
        root: str,
        blobs: Blobs,
        sealing: Sealing | None,
        created: Callable[[str, bytes], None],
    ) -> None:
        super().__init__(tree, root, blobs, sealing)
        self._created = created

    def applied(self, fiber: Fiber, ops: Sequence[Op], results: list[Any]) -> None:
        for op, result in zip(ops, results, strict=True):
            # Before its task is judged, which nobody else knows then.
            if type(op) is Create and op.path == self._plans and b'"key"' in op.data:
                self._created(result[-10:], op.data)
        super().applied(fiber, ops, results)
        depth = self.root.count("/") + 1
        if any(
            op.path.startswith(f"{self.root}/keys/")
            or (type(op) in (Create, Delete) and op.path.count("/") == depth)
            for op in ops
        ):
            self._judge_keys()

    def _judge_keys(self) -> None:
        named: dict[str, str] = {}
        node = self.nodes.get(f"{self.root}/keys")
        for name in node.children if node is not None else ():
            number, _, key = self.opened(f"{self.root}/keys/{name}").decode().partition(" ")
            plan = f"{self._plans}{number}"
            if plan not in self.nodes or PlanRecord.from_bytes(self.opened(plan)).key != key:
                raise Violation(f"S12 the key {key} names {number}, which does not have it")
            named[key] = number
        for name in self.nodes[self.root].children:
            path = f"{self.root}/{name}"
            if not name.startswith("plan-") or b'"key"' not in self.nodes[path].data:
                continue
            key = PlanRecord.from_bytes(self.opened(path)).key
            if named.get(key) != name[5:] and not self._has_ended(path):
                raise Violation(f"S12 {path} goes on, and its key {key} names {named.get(key)}")

    def _has_ended(self, path: str) -> bool:
        if f"{path}/done" in self.nodes:
            return True
        ready = f"{path}/ready"
        return ready in self.nodes and control_from_bytes(self.opened(ready)) == "cancelled"


def join_in(world: World) -> None:
    """In some runs, authors that have the same key."""
    rng = random.Random(f"keyed {world.seed}")
    if rng.random() >= SHARE:
        return
    for index in range(rng.randint(2, AUTHORS)):
        plan = authors.Plan(f"k{index}", rng.choice(("hold", "cascade")))
        world.plans.append(plan)
        for task in authors.graph(world, plan, rng.randint(1, 4)):
            task.keyed, task.adds = True, []
        world.write(plan, _create(world, plan, rng.random() < 0.5, rng.random() < 0.5))


def _create(world: World, plan: authors.Plan, replaces: bool, starts: bool) -> authors.Script:
    """Create the plan under the key, or find it there; add its tasks under theirs, and start it."""
    record = PlanRecord(plan.name, plan.name, 0.0, on_failure=plan.on_failure, key=KEY)
    number, is_new = yield from keys.create_keyed(world.paths, record, replaces)
    path = world.paths.plan(number)
    if not is_new:
        data = world.opened(path)
        if data is None:
            return  # it was removed meanwhile
        found = PlanRecord.from_bytes(data).name
        plan = next(each for each in world.plans if each.name == found)
    world.created(plan, number)
    if starts:
        yield from authors.mark_ready(world, plan)
    tasks = [task for task in plan.tasks if task.keyed]
    yield from authors.add(world, authors.new_author(world, path, plan), tasks)
    yield from authors.mark_ready(world, plan)
