"""The invariants S1 to S22 and L1, judged after every accepted transaction on what it touched.

The auditor knows the tree, and the history of what the tree accepted. It keeps an index of where
each task stands, so that judging a transaction costs as much as the transaction, not as the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from zkplan.embedded.tree import Tree
from zkplan.protocol.features.decisions import CUT
from zkplan.protocol.layout import Paths, parse_claim, parse_delayed, parse_entry, parse_gate
from zkplan.protocol.records import Dead, State, control_from_bytes, count_from_bytes
from zkplan.protocol.requests import Create, Delete, Op, SetData
from zkplan.protocol.transactions import pending_dependents

from . import added, expiry, gates, sharing
from .by_hand import BY_HAND
from .history import Historian
from .index import Index
from .limits import Judge
from .network import Fiber
from .outcomes import fix, judge_end, judge_told
from .places import judge_standing
from .queues import judge_place, judge_ready
from .reopening import REOPENS, cascades, is_put_back, judge_done
from .sealing import Sealing
from .shares import Controls
from .store import Blobs, sealed
from .story import FAILED, Meant, Violation, name_in, outcome_from
from .transaction import CLEARS, Transaction

#: Kinds of fibers that delete plans, and that fix outcomes for an operator.
REMOVES = "remove"
DECIDES = "decide"


class Auditor:
    """Judges each accepted transaction. `root` is the root of the tree of plans."""

    def __init__(self, tree: Tree, root: str, blobs: Blobs, sealing: Sealing | None = None) -> None:
        self._keys = sealing
        self.root, self.blobs = root, blobs
        self.nodes = tree._nodes  # read directly: the tree's own reads copy
        self.names = blobs.names
        self.permits = Judge(tree._nodes, Paths(root), self.opened)
        self.tasks: dict[str, Meant] = {}
        self.removed_plans: set[str] = set()
        self.index = Index(root, tree, self.opened)
        self._controls = Controls()
        self._sharing = sharing.Judge(self.nodes, self.names)
        #: Plans that are done or cancelled, or were.
        self._ended: set[str] = set()
        self._entries: set[str] = set()
        self._prov_of, self._dep_of = dict[str, str](), dict[str, str]()
        self._pending_records: dict[str, list[Meant]] = {}
        self._claims_nodes = f"{root}/claims/"
        self._workers = f"{root}/workers/"
        self._delayed = f"{root}/delayed/"
        self._plans = f"{root}/plan-"
        #: By claims node, the queues that its worker serves.
        self.served: Callable[[str], Sequence[str]] = lambda claims_node: ()
        self._gates = f"{root}/gates/"
        self._idle = f"{root}/idle/"
        self.history = Historian(root, self.nodes, self.tasks, self.opened, blobs.there)

    def expect(self, task: Meant) -> None:
        """Announce a task before anybody sends it."""
        self.names[task.name] = task

    # What the network reports.

    def expired(self, paths: list[str]) -> None:
        """Ephemerals went; only owners, registrations and places of idle workers are ephemeral."""
        for path in paths:
            if not path.startswith((self._workers, self._idle)) and not path.endswith("/owner"):
                raise Violation(f"S6 {path} is ephemeral")

    def applied(self, fiber: Fiber, ops: Sequence[Op], results: list[Any]) -> None:
        self.permits.applied(fiber, ops)
        made = Transaction(fiber, self._claims_before(ops), {}, [], [], {}, set())
        plans, changed, blobs = set[str](), set[str](), self.blobs
        for op, result in zip(ops, results, strict=True):
            kind = type(op)
            path = op.path
            if kind is Create:
                path = result
            elif kind is not Delete and kind is not SetData:
                continue
            if path.startswith(self.index.active):
                plan_path = f"{self._plans}{path[len(self.index.active) :]}"
                plans.add(plan_path)
                if fiber.kind == BY_HAND:
                    self.index.unindexed.add(plan_path)
            elif (
                path.endswith(("/ready", "/done")) and path.count("/") == self._plans.count("/") + 1
            ):
                plans.add(path.rpartition("/")[0])
                if path.endswith("/ready") and isinstance(op, Create | SetData):
                    self._controls.judge(fiber.kind, path, op.data)
            if path.startswith(self._plans):
                if fiber.kind == expiry.EXPIRES:
                    changed.add(path[: len(self._plans) + 10])
                blobs.applied(op, path, path[len(self._plans) :])
                self._sharing.applied(op, path, path[len(self._plans) :])
                self._in_plan(made, op, path)
            elif path.startswith(self._claims_nodes):
                self._standing(made, op, path)
            elif path.startswith(self._delayed):
                later = parse_delayed(path[len(self._delayed) :])
                if later is not None:
                    plan = f"{self._plans}{later.plan}"
                    self._place(made, op, path, f"{plan}/task-{later.entry.task}")
            elif path.startswith(self._gates):
                gate = parse_gate(path[len(self._gates) :])
                if gate is not None:
                    plan = f"{self._plans}{gate.plan}"
                    self._place(made, op, path, f"{plan}/task-{gate.entry.task}")
        for path in made.edges:
            self._judge_edge(path)
        for path in made.opened:
            judge_done(self.nodes, path)
        for path in changed:
            expiry.judge(self.nodes, self.root, path, path in self._ended)
        for path in plans:
            self.index.judge(path)
            if expiry.has_ended(self.nodes, self.opened, path):
                self._ended.add(path)
            elif path in self.nodes:
                self._ended.discard(path)  # it was retried
        for task in made.touched.values():
            self._judge(task)
            if task.alive and task.path not in self.nodes:
                task.alive = False
                if not task.removed:
                    judge_end(self.nodes, task)
        self.history.applied(made, ops, results)

    def _claims_before(self, ops: Sequence[Op]) -> dict[str, str]:
        found = {}
        for op in ops:
            if op.path.startswith(self._claims_nodes) and type(op) is not Create:
                claim = parse_claim(op.path.rpartition("/")[2])
                if claim is not None:
                    found[f"{self._plans}{claim.plan}/task-{claim.task}"] = op.path
        return found

    # What each operation means.

    def _standing(self, made: Transaction, op: Op, path: str) -> None:
        claims_node, _, name = path[len(self._claims_nodes) :].partition("/")
        if name.startswith("pending-"):
            self._pending(made, op, path)
            return
        claim = parse_claim(name)
        if claim is None or type(op) is SetData:
            return
        task = self._place(made, op, path, f"{self._plans}{claim.plan}/task-{claim.task}")
        if task is None:
            return
        if type(op) is Create:
            if claim.n <= task.last_n:
                raise Violation(f"S8 {task.name} is claimed with N={claim.n}, after {task.last_n}")
            task.last_n = claim.n
            if self._state(f"{self._plans}{claim.plan}") != "running":
                raise Violation(f"S9 {task.name} is claimed while its plan does not run")
        elif made.fiber.kind == CLEARS:
            if f"{self._workers}{claims_node}" in self.nodes:
                raise Violation(f"L1 {task.name} is released although worker {claims_node} lives")
            if claims_node in task.released_for:
                raise Violation(
                    f"L1 {task.name} is released twice for the one lost worker {claims_node}"
                )
            task.released_for.append(claims_node)

    def _pending(self, made: Transaction, op: Op, path: str) -> None:
        if type(op) is Create:
            named = []
            for target in pending_dependents(op.data):
                task = self.tasks.get(f"{self._plans}{target.plan}/task-{target.task}")
                if task is not None:
                    named.append(task)
                    task.pending_records += 1
            self._pending_records[path] = named
        elif type(op) is Delete:
            for task in self._pending_records.pop(path, ()):
                task.pending_records -= 1
                made.touched[task.path] = task

    def _in_plan(self, made: Transaction, op: Op, path: str) -> None:
        parts = path[len(self._plans) :].split("/")
        depth = len(parts)
        if depth == 1:
            if type(op) is Delete:
                self.removed_plans.add(parts[0])
            return
        plan_path = f"{self._plans}{parts[0]}"
        kind = parts[1]
        if depth == 2:
            if kind.startswith("task-"):
                self._task(made, op, plan_path, path)
            elif kind in ("done", "add-count") and type(op) is Create:
                made.opened.add(plan_path)
            return
        if kind.startswith("task-"):
            self._in_task(made, op, f"{plan_path}/{kind}", parts[2])
        elif kind == "runnable" or (kind == "queues" and depth == 4):
            entry = parse_entry(parts[-1])
            if entry is None:
                return
            if type(op) is Create:
                if path in self._entries:
                    raise Violation(f"S8 the runnable name {path} came back")
                self._entries.add(path)
            self._place(made, op, path, f"{plan_path}/task-{entry.task}")
        elif kind == "dead" or kind == "results":
            task_path = f"{plan_path}/task-{parts[2]}"
            if kind == "dead" and task_path in self.tasks:
                self._letter(made, op, task_path)
            if kind == "dead" and (task_path in self.nodes or type(op) is Delete):
                self._place(made, op, path, task_path)
            elif kind == "results" and type(op) is Create and task_path not in self.nodes:
                # While the task stands, its outcome is a failure that an operator may retry.
                fix(self.tasks[task_path], op.data)

    def _letter(self, made: Transaction, op: Op, task_path: str) -> None:
        """S8: a failure that is delivered once more gives no attempt back."""
        task = self.tasks[task_path]
        if type(op) is Delete:
            made.letters[task_path] = task.used_up
            task.used_up = 0  # until `_result` finds that it is no retry
        elif type(op) is Create:
            a = Dead.from_bytes(op.data).a
            if a < task.used_up:
                raise Violation(f"S8 {task.name} died of {task.used_up} attempts, and now of {a}")
            task.used_up = a

    def _task(self, made: Transaction, op: Op, plan_path: str, path: str) -> None:
        if type(op) is Create:
            if "done" in self.nodes[plan_path].children:
                raise Violation(f"S7 {path} is added to a plan that is done")
            task = self.names[name_in(op.data)]
            task.numbers += 1
            if task.numbers > 1:
                raise Violation(f"S4 {task.name} is added twice: {task.path} and {path}")
            task.path, task.number, task.alive = path, path[-10:], True
            self.tasks[path] = made.touched[path] = task
        elif type(op) is Delete:
            task = made.touched[path] = self.tasks[path]
            if made.fiber.kind in (REMOVES, expiry.EXPIRES):
                task.removed = True
                return
            task.commits += 1
            if task.commits > 1:
                raise Violation(f"S4 {task.name} is committed twice")
            if task.pure and path not in made.claims and path not in made.fiber.under:
                self._judge_run(made, task)
            else:
                self._judge_claim(made, task)
            if task.pure and task.fixed is None:
                # A later task of this run shows by its outcome whether that was right.
                claim = parse_claim(made.claims.get(path, "").rpartition("/")[2])
                key = f"{task.number}.{claim.n if claim is not None else 0}"
                task.fixed = sealed(task, key, task.outcome([d.fixed or b"" for d in task.deps]))
            made.ended.append(task)

    def _judge_claim(self, made: Transaction, task: Meant) -> None:
        """S5: what fixes or finishes a task must be sent under its current claim."""
        relied_on, current = made.fiber.under.get(task.path, "no claim"), made.claims.get(task.path)
        if relied_on != current:
            raise Violation(f"S5 {task.name} is finished under {relied_on}, current is {current}")

    def _judge_run(self, made: Transaction, task: Meant) -> None:
        """S5, S9: a pure task ends without a claim only right behind the pure one it waited for."""
        before = [dep for dep in task.deps if dep in made.ended]
        if not (len(before) == 1 and before[0].pure and before[0] is made.ended[-1]):
            raise Violation(f"S5 {task.name} is finished without a claim, and not in a run")
        if not all(dep.commits for dep in task.deps):
            raise Violation(f"S3 {task.name} has run without all its arguments")
        if self._state(task.path.rpartition("/")[0]) != "running":
            raise Violation(f"S9 {task.name} is committed in a run while its plan does not run")
        before[0].delivered = True

    def _in_task(self, made: Transaction, op: Op, task_path: str, child: str) -> None:
        task = self.tasks.get(task_path)
        if task is None:
            return
        made.touched[task_path] = task
        created = type(op) is Create
        if child.startswith("arg-") and created:
            self._argument(made, task, int(child[4:]), op.data)  # type: ignore[union-attr]
        elif child.startswith("arg-") and made.fiber.kind == REOPENS:
            task.given.pop(int(child[4:]), None)
        elif child.startswith("dep-"):
            made.edges.append(f"{task_path}/{child}")
        elif child.startswith("prov-"):
            prov = f"{task_path}/{child}"
            if created:
                self.learn_edge(prov, op.data)  # type: ignore[union-attr]
            made.edges.append(self._dep_of[prov])
        elif child == "result" and created:
            self._result(made, task, op.data)  # type: ignore[union-attr]
        elif child == "result" and type(op) is Delete and task_path in self.nodes:
            task.verdict = None  # the task is dead, and may be retried

    def _result(self, made: Transaction, task: Meant, data: bytes) -> None:
        """S18: an operator's outcome counts from now on. So does a failure, until it is dead."""
        if made.fiber.kind == DECIDES:
            if task.verdict is not None or task.fixed is not None:
                raise Violation(f"S18 {task.name} is decided although its outcome is fixed")
            task.accepted.append(data)
            task.verdict = data
            return
        if task.path in made.letters:  # its failure is delivered once more
            task.used_up = made.letters[task.path]
        else:
            self._judge_claim(made, task)
        if data.startswith(FAILED):
            task.verdict = data
        else:
            fix(task, data)

    def learn_edge(self, prov: str, data: bytes) -> None:
        """An edge's record names its dep by a path below the plan."""
        at = data.index(b"task-")
        plan_path = prov.partition("/task-")[0]
        dep = f"{plan_path}/{data[at : at + 30].decode()}"
        self._dep_of[prov] = dep
        self._prov_of[dep] = prov

    def _argument(self, made: Transaction, task: Meant, position: int, data: bytes) -> None:
        dep = task if task.gate is not None else task.deps[position]
        data = outcome_from(dep, data)
        if task.gate is not None:
            gates.judge_opening(task, data, gates.seen(self.nodes, task.gate.path))
            return
        if position in task.given:
            raise Violation(f"S19 {task.name} gets {dep.name} twice, at {position}")
        task.given[position] = data
        if data.startswith(FAILED) and dep.alive:
            under, cascade = dep.path in made.claims, cascades(self.nodes, task.path[:-16])
            judge_told(task, dep, data, under=under, cascades=cascade)
            return
        fix(dep, data)
        if not dep.commits or task in dep.adds:
            dep.delivered = True

    def _place(self, made: Transaction, op: Op, path: str, task_path: str) -> Meant | None:
        task = self.tasks.get(task_path)
        if task is None:
            raise Violation(f"S6 {path} stands for a task that never was")
        made.touched[task_path] = task
        if type(op) is Create:
            judge_place(task, op, path, self.served(path.split("/")[-2]))
            if made.fiber.kind != DECIDES:
                added.judge_placed(self.nodes, self.names, task)
            task.places.append(path)
            task.is_lost = False
        elif type(op) is Delete and path in task.places:
            task.places.remove(path)
            task.is_lost = made.fiber.kind == BY_HAND
        return task

    # Judgements on the tree.

    def _state(self, plan_path: str) -> State | None:
        path = f"{plan_path}/ready"
        return control_from_bytes(self.opened(path)) if path in self.nodes else None

    def opened(self, path: str) -> bytes:
        """The data of a znode that is there, as a holder of the keys reads them."""
        data = self._keys.opened(path) if self._keys is not None else None
        return self.nodes[path].data if data is None else data

    def _judge_edge(self, dep: str) -> None:
        prov = self._prov_of.get(dep)
        if (dep in self.nodes) != (prov in self.nodes):
            raise Violation(f"S2 {dep} and {prov}: one stands without the other")
        if dep in self.nodes and prov is not None:
            named, task = self.nodes[dep].data.decode(), prov.rpartition("/")[0]
            if named != task[-10:]:
                raise Violation(f"S2 {dep} names {named!r}, its other end is {prov}")

    def _judge(self, task: Meant) -> None:
        node = self.nodes.get(task.path)
        if node is None:
            if task.places and not task.removed:
                raise Violation(f"S6 {task.name} is gone, left are {task.places}")
            return
        deps = arguments = 0
        incomplete = owner = False
        for name in node.children:
            kind = name.partition("-")[0]
            if kind == "dep":
                deps += 1
                if f"arg-{name[4:]}" in node.children:
                    raise Violation(f"S2 {task.name}: {name} and its argument stand together")
            elif kind == "arg":
                arguments += 1
            elif kind == "owner":
                owner = True
            elif kind == "incomplete":
                incomplete = True
            elif name == CUT:
                task.cut = True
        ready = self.nodes.get(f"{task.path}/ready")
        if ready is None:
            raise Violation(f"S1 {task.name} is half defined")
        judge_ready(task, ready)
        # The argument of a gate comes with its opening.
        arguments -= gates.opened_with(task, node.children)
        if deps and is_put_back(self.nodes, task):
            arguments, deps = arguments + deps, 0  # a retry puts it back, piece by piece
        judge_standing(
            task, ready.version, count_from_bytes(ready.data), deps, arguments, incomplete
        )
        claim = next((place for place in task.places if place.startswith(self._claims_nodes)), "")
        if owner and not claim and (task.places or not task.is_lost):
            raise Violation(f"S1 {task.name} has an owner and no claim")
        if claim and not owner:
            worker = claim[len(self._claims_nodes) :].partition("/")[0]
            if f"{self._workers}{worker}" in self.nodes:
                raise Violation(f"S1 {task.name} is claimed by the living {worker}, without owner")
