"""Keys in the simulation: several authors create one plan, and add its tasks, under the same keys.
Some leave theirs half defined, and the next one takes the key over.

S12 is judged here, after every transaction that may break it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from zkplan.embedded.tree import Tree
from zkplan.protocol.features import keys
from zkplan.protocol.layout import AUTHOR, author_mark
from zkplan.protocol.records import PlanRecord, control_from_bytes
from zkplan.protocol.requests import Create, Delete, Multi, Op, SetData

from . import auditor, authors
from .network import Client, Fiber
from .sealing import Sealing
from .store import Blobs
from .story import Violation

if TYPE_CHECKING:
    from .world import World

#: The share of runs with such plans, and how many authors have the same key.
SHARE, AUTHORS = 0.3, 3
KEY = "nightly"
#: How often an author comes later than the others, leaves his plan half defined, has no session, or
#: loses it. And for how many steps he then counts as living.
LATER, LEAVES, LEASED, LOSES, LEASE = 0.6, 0.4, 0.3, 0.2, (10, 300)


class Auditor(auditor.Auditor):
    """Judges the keys of plans, too. `created` is told of each plan with a key, and `taken_over` of
    each whose key goes to another one, because its author is gone."""

    now: Callable[[], int] = lambda: 0
    taken_over: Callable[[str], None] = lambda plan_path: None

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
        #: The marks of authors that live; for how long one lives without a session; when one has
        #: added last.
        self._living = set[str]()
        self._leases, self._added = dict[str, int](), dict[str, int]()
        #: Plans that had ended when another one took their key. A retry brings no key back.
        self._keyless = set[str]()

    def expired(self, paths: list[str]) -> None:
        marks = {path for path in paths if f"/add-ids/{AUTHOR}" in path}
        self._living -= marks
        super().expired([path for path in paths if path not in marks])

    def applied(self, fiber: Fiber, ops: Sequence[Op], results: list[Any]) -> None:
        for op, result in zip(ops, results, strict=True):
            # Before its task is judged, which nobody else knows then.
            if type(op) is Create and op.path == self._plans and b'"key"' in op.data:
                self._created(result[-10:], op.data)
        super().applied(fiber, ops, results)
        self._judge_authors(ops)
        depth = self.root.count("/") + 1
        if any(
            op.path.startswith(f"{self.root}/keys/")
            or (type(op) in (Create, Delete) and op.path.count("/") == depth)
            for op in ops
        ):
            self._judge_keys()

    def _judge_authors(self, ops: Sequence[Op]) -> None:
        taken = ""
        if any(type(op) is SetData and op.path.startswith(f"{self.root}/keys/") for op in ops):
            states = (op.path for op in ops if type(op) is Create and op.path.endswith("/ready"))
            taken = next((path[: -len("/ready")] for path in states if "/task-" not in path), "")
        if taken:
            if any(mark.startswith(f"{taken}/") for mark in self._living):
                raise Violation(f"S12 {taken} loses its key while its author lives")
            since = self.now() - self._added[taken]
            if since < self._leases.get(taken, 0):
                raise Violation(f"S12 {taken} loses its key {since} steps after an add")
            self.taken_over(taken)
        for op in ops:
            plan, _, name = op.path.partition("/add-")
            if name == "count" and isinstance(op, Create | SetData):
                self._added[plan] = self.now()
            elif not name.startswith(f"ids/{AUTHOR}") or plan == taken:
                continue
            elif type(op) is Delete:
                self._living.discard(op.path)
            elif isinstance(op, Create) and op.ephemeral:
                self._living.add(op.path)
            elif isinstance(op, Create):
                self._leases[plan] = int(op.data)

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
            if named.get(key) == name[5:] or path in self._keyless:
                continue
            if self._has_ended(path):
                self._keyless.add(path)
            else:
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
        author = _Author(world, plan, rng)
        if index and rng.random() < LATER:
            world.pending.append(author.come)
        else:
            author.come()


class _Author:
    """Creates the plan under the key, or finds it there; adds its tasks under theirs, and starts
    it. One that leaves does so before its adds, or before it starts the plan."""

    def __init__(self, world: World, plan: authors.Plan, rng: random.Random) -> None:
        self._world, self._plan = world, plan
        self._replaces, self._starts = rng.random() < 0.5, rng.random() < 0.5
        self._leaves = rng.choice(("early", "late")) if rng.random() < LEAVES else ""
        self._lease_ms = rng.randint(*LEASE) if rng.random() < LEASED else 0
        self._loses = rng.random() < LOSES
        # Nobody ends a plan without tasks but who waits for it.
        world.awaited = world.awaited or self._leaves == "early"

    def come(self) -> None:
        world = self._world
        world.write(self._plan, self._create())
        if self._loses:
            client = world.writers[-1]
            world.pending.insert(0, lambda: _expire(world, client))

    def _create(self) -> authors.Script:
        made, world = self._plan, self._world
        record = PlanRecord(made.name, made.name, 0.0, on_failure=made.on_failure, key=KEY)
        number, is_new = yield from keys.create_keyed(
            *(world.paths, record, self._replaces), lease_ms=self._lease_ms
        )
        plan = _found(world, made, number, is_new)
        if plan is None:
            return
        if is_new and self._leaves == "early":
            yield from self._leave(number)
            return
        if self._starts and not self._leaves:
            yield from authors.mark_ready(world, plan)
        tasks = [task for task in plan.tasks if task.keyed]
        author = authors.new_author(world, world.paths.plan(number), plan)
        yield from authors.add(world, author, tasks)
        if is_new and self._leaves:
            yield from self._leave(number)
        else:
            yield from authors.mark_ready(world, plan)

    def _leave(self, number: str) -> authors.Script:
        if not self._lease_ms:
            mark = author_mark(self._world.paths.plan(number), self._plan.name)
            yield Multi([Delete(mark)])


def _expire(world: World, client: Client) -> None:
    if client in world.clients:
        world.network.expire(client)


def taken_over(world: World, plan_path: str) -> None:
    """The plan lost its key to another one: it is cancelled, and somebody removes it."""
    data = world.opened(plan_path)
    assert data is not None
    name = PlanRecord.from_bytes(data).name
    plan = next(each for each in world.plans if each.name == name)
    world.created(plan, plan_path[-10:])
    if not plan.removed:
        plan.removed = True
        world.start("operator", auditor.REMOVES, authors.remove(world, plan))


def _found(world: World, plan: authors.Plan, number: str, is_new: bool) -> authors.Plan | None:
    """The plan of that number, as its author means it; None where it was removed meanwhile."""
    path = world.paths.plan(number)
    if not is_new:
        data = world.opened(path)
        if data is None:
            return None
        found = PlanRecord.from_bytes(data).name
        plan = next(each for each in world.plans if each.name == found)
    world.created(plan, number)
    return plan
