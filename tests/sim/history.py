"""S13: what the history of a plan adds up to is what stands in the tree, after every transaction.

A judge of its own: what it looks up in the tree it parses itself, and it keeps what every segment
told when it was made, to compare it with what a merge makes of it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zkplan.protocol.history.compaction import Cut
from zkplan.protocol.history.segments import Record, parse_span, records_from_bytes
from zkplan.protocol.records import control_from_bytes
from zkplan.protocol.requests import Create, Delete, Op
from zkplan.values.store_maintenance import chain
from zkplan.views.history_state import KEPT, PlanState, TaskState

from .story import Meant, Violation
from .transaction import CLEARS, Transaction

if TYPE_CHECKING:
    from .printing import Printing

#: The kind of the fibers that tidy histories up.
MERGES = "merge"
#: The most transactions of a plan that are under way at once in a run.
UNDER_WAY = 4
_CLAIM = re.compile(r".*/claims/([^/]+)/\d{10}-\d{10}\.(\d+)\.[^/]+")
_RUNNABLE = re.compile(r".*/runnable/(\d{4})-\d{10}([^/]+)")
_QUEUED = re.compile(r".*/queues/([^/]+)/(\d{4})-\d{10}([^/]+)")
_DELAYED = re.compile(r".*/delayed/(\d{13}-)\d{10}-(\d{4})-\d{10}([^/]+)")
_GATED = re.compile(r".*/gates/\d{10}-(\d{4})-\d{10}([^/]+)")
_TASK = re.compile(r"-(\d{10})\.")
_DEAD = re.compile(r".*/dead/\d{10}")
#: The letters of events that say where the task stands now.
_MOVES = "rugmtfhlo"
#: The letters of events that end a claim, and where behind the letter they name who had it.
_ENDS = {"k": 6, "x": 4, "h": 2, "l": 2, "f": 0}


def entry_of(path: str) -> str:
    """What the history calls the place of a task that stands at this entry; empty: it is none."""
    if found := _RUNNABLE.fullmatch(path):
        return f"r{found[1]}{found[2]}"
    if found := _QUEUED.fullmatch(path):
        return f"r{found[2]}{found[3]}/{found[1]}"
    if found := _DELAYED.fullmatch(path):
        return f"d{found[1]}{found[2]}{found[3]}"
    if found := _GATED.fullmatch(path):
        return f"g{found[1]}{found[2]}"
    return ""


def place_of(path: str) -> str:
    """What the history calls the place of a task that stands at this znode."""
    if found := _CLAIM.fullmatch(path):
        return f"c {found[1]} {found[2]}"
    if entry := entry_of(path):
        return entry
    if _DEAD.fullmatch(path):
        return "x"
    raise Violation(f"S13 {path} is no place of a task")


def moved_waiting(ops: Sequence[Op]) -> set[str]:
    """The paths of tasks whose open edges this transaction writes anew, with another rank."""
    made = {op.path for op in ops if type(op) is Create}
    gone = {op.path[:-16] for op in ops if type(op) is Delete and op.path[-16:-10] == "/prov-"}
    found: set[str] = set()
    for op in ops:
        source, _, name = op.path.rpartition("/")
        if type(op) is Create and name == "prov-" and source in gone:
            dep = f"{source.rpartition('/')[0]}/{json.loads(op.data)['dep']}"
            if dep not in made:
                found.add(dep.rpartition("/")[0])
    return found


def judge_places(created: Sequence[str], record: Record) -> None:
    """A task is told to have moved to an entry only where its transaction has made that entry."""
    placed = {
        (int(found[1]), entry)
        for path in created
        if (entry := entry_of(path)) and (found := _TASK.search(path))
    }
    for letter, *rest in record.events:
        if letter in _MOVES and rest[1] and tuple(rest[:2]) not in placed:
            raise Violation(f"S13 of {rest[0]} {letter} to {rest[1]} is told, and it did not move")


def told_place(task: TaskState) -> str:
    return f"c {task.worker} {task.n}" if task.place == "c" else task.place


def judge_claims(made: Transaction, plan: str, record: Record) -> None:
    """Each end of a claim is told as that of the worker, or of the lease, that had it. What is lost
    with these is told apart from what they end themselves."""
    for letter, *rest in record.events:
        if letter not in _ENDS:
            continue
        claim = made.claims.get(f"{plan}/task-{rest[0]:010d}")
        if claim is None:
            if letter != "k":  # in a run of pure tasks only the first has a claim
                raise Violation(f"S13 of {rest[0]} the end of a claim is told that it did not have")
            continue
        if letter in "hl" and (letter == "l") != (made.fiber.kind == CLEARS):
            raise Violation(f"S13 {claim} is ended by {made.fiber.kind}, and told as {letter}")
        at = _ENDS[letter]
        worker = rest[at] if at < len(rest) else record.by
        if at and worker != claim.split("/")[-2]:
            raise Violation(f"S13 the end of {claim} is told as one of {worker}")


class Historian:
    """Judges the histories of all plans. `opened` gives the data of a znode as they are meant,
    `stored` what lies in the store by plan and name."""

    def __init__(
        self,
        root: str,
        nodes: Mapping[str, Any],
        tasks: Mapping[str, Meant],
        opened: Callable[[str], bytes],
        stored: Mapping[tuple[str, str], bytes],
    ) -> None:
        self._stored = stored
        self._plans = f"{root}/plan-"
        self._nodes, self._tasks, self._opened = nodes, tasks, opened
        self.plans: dict[str, PlanState] = {}
        #: By znode of a history, what it told when it was made.
        self._told: dict[str, list[Record]] = {}
        self._removed: set[str] = set()
        #: By plan, the numbers of all its transactions.
        self._numbers: dict[str, list[int]] = {}
        self.printing: Printing | None = None
        #: The plans whose histories an access list has protected, and whether that is over.
        self.shut: set[str] = set()
        self._silent = Counter[str]()
        self.is_calm: Callable[[], bool] = lambda: False
        #: False: something else is looked for, which may break this as well.
        self.judges = True

    def applied(self, tried: Transaction, ops: Sequence[Op], results: Sequence[Any]) -> None:
        """One transaction."""
        cut, kind = len(self._plans), tried.fiber.kind
        changed: dict[str, set[str]] = {}
        made: dict[str, list[Record]] = {}
        deleted: list[Record] = []
        for path in tried.touched:
            changed.setdefault(path[: cut + 10], set()).add(path)
        for op, result in zip(ops, results, strict=True):
            path = result if type(op) is Create else op.path
            if not path.startswith(self._plans):
                continue
            plan = path[: cut + 10]
            if type(op) is Create and path == f"{plan}/history":
                self.plans[plan] = PlanState()
            if path[cut + 10 :] in ("/ready", "/done"):
                changed.setdefault(plan, set())
            span = parse_span(path.rpartition("/")[2])
            if "/history/" not in path or span is None or plan in self._removed:
                continue
            if type(op) is Create:
                made[path] = records_from_bytes(span, op.data, 0)
            elif type(op) is Delete and kind == MERGES:
                deleted += self._told.pop(path) if self.judges else []
            elif type(op) is Delete:
                self._removed.add(plan)
        if not self.judges:
            return
        pairs = zip(ops, results, strict=True)
        created = [result for op, result in pairs if type(op) is Create]
        moved = {each for each in moved_waiting(ops) if self._tells(each[: cut + 10])}
        for path, records in made.items():
            self._made(path, records, deleted, changed)
            plan = path.partition("/history/")[0]
            if "/merged-" not in path and plan not in self.shut:
                judge_claims(tried, plan, records[0])
                judge_places(created, records[0])
                if self.printing is not None:
                    self.printing.judge(tried, plan, records[0], self._nodes)
                moves = [each for each in records[0].events if each[0] == "m" and not each[2]]
                moved ^= {f"{plan}/task-{each[1]:010d}" for each in moves}
        if moved:
            raise Violation(f"S13 moved while they wait, or told so, are {moved}")
        recorded = {path.partition("/history/")[0] for path in made}
        for plan, paths in changed.items():
            has_ended = any(path in self._tasks and path not in self._nodes for path in paths)
            if plan in self.shut - recorded and has_ended and self.is_calm():
                self._judge_silence(plan)
            if self._tells(plan):
                self._judge_plan(plan)
                for each in paths:
                    self._judge_task(plan, each)

    def _judge_silence(self, plan: str) -> None:
        """Only what was under way when the access list was lifted may end tasks untold."""
        self._silent[plan] += plan in self.plans and plan not in self._removed
        if self._silent[plan] > UNDER_WAY:
            raise Violation(f"S13 {plan} ends tasks without an event, and nothing is shut")

    def _tells(self, plan: str) -> bool:
        return plan in self.plans and plan not in self._removed | self.shut

    def _made(
        self,
        path: str,
        records: list[Record],
        deleted: list[Record],
        changed: dict[str, set[str]],
    ) -> None:
        plan = path.partition("/history/")[0]
        self._told[path] = records
        if "/merged-" in path:
            # A segment does not hold its time; the tree does.
            before = sorted(record._replace(ms=0) for record in deleted)
            if [record._replace(ms=0) for record in records] != before:
                raise Violation(f"S13 {path} does not tell what the merged segments told")
            return
        state = self.plans[plan]
        self._numbers.setdefault(plan, []).append(records[0].number)
        if records[0].number <= state.number:
            raise Violation(f"S13 {path} comes after number {state.number}")
        state.apply(records)
        numbers = {e[1] for record in records for e in record.events if len(e) > 1 and e[0] != "S"}
        changed.setdefault(plan, set()).update(f"{plan}/task-{each:010d}" for each in numbers)

    def _judge_plan(self, plan: str) -> None:
        if plan not in self._nodes:
            return
        state, ready = self.plans[plan], f"{plan}/ready"
        stands = control_from_bytes(self._opened(ready)) if ready in self._nodes else "defining"
        if ready in self._nodes and b'"starts"' in self._opened(ready):
            stands = "running"  # with keys the state itself follows
        if state.state != stands:
            raise Violation(f"S13 {plan} is {stands}, its history says {state.state}")
        if state.done != (f"{plan}/done" in self._nodes):
            raise Violation(f"S13 {plan}: its history says that it is done: {state.done}")
        if self._nodes[f"{plan}/history/untold"].version:
            raise Violation(f"S13 {plan}: something is untold, and nothing was full")

    def _judge_task(self, plan: str, path: str) -> None:
        task = self.plans[plan].tasks.get(int(path[-10:]))
        node, meant = self._nodes.get(path), self._tasks.get(path)
        if meant is None:
            return
        if node is None:
            if task is None or not task.gone:
                raise Violation(f"S13 {path} is gone, and its history does not say so")
            if bool(task.flags & KEPT) != (f"{plan}/results/{path[-10:]}" in self._nodes):
                raise Violation(f"S13 {path}: its history says of its outcome {task.flags}")
            return
        if task is None or task.gone:
            raise Violation(f"S13 {path} stands, and its history says that it does not")
        stands = sorted(map(place_of, meant.places)) or [""]
        if stands != [told_place(task)]:
            raise Violation(f"S13 {path} stands at {stands}, told is {told_place(task)!r}")
        deps = [self._nodes[f"{path}/{name}"].data for name in node.children if name[:4] == "dep-"]
        waits = Counter(int(data) for data in deps)
        if waits != task.open:
            raise Violation(f"S13 {path} waits for {waits}, told is {task.open}")

    def _in_store(self, plan: str) -> list[Record]:
        cut = Cut.from_bytes(self._opened(f"{plan}/history"))
        earlier = chain(cut, lambda part: self._stored[plan[-10:], part.name])
        return [record for part in earlier.parts for record in part.records()]

    def judge_end(self) -> None:
        """Each plan again, from what lies in the store and in the tree alone."""
        for plan, followed in self.plans.items() if self.judges else ():
            node = self._nodes.get(f"{plan}/history")
            if node is None or plan in self._removed | self.shut:
                continue
            spans = sorted(filter(None, map(parse_span, node.children)))
            found = self._in_store(plan)
            for span in spans:
                path = f"{plan}/history/{span.name}"
                found += records_from_bytes(span, self._opened(path), 0)
            numbers = [record.number for record in found]
            if numbers != self._numbers.get(plan, []):
                raise Violation(f"S13 {plan} has {numbers}, it was told {self._numbers.get(plan)}")
            rebuilt = self.plans[plan] = PlanState()
            rebuilt.apply(found)
            if rebuilt.number != followed.number:
                raise Violation(f"S13 {plan}: the history ends with {rebuilt.number}")
            self._judge_plan(plan)
            for path in self._tasks:
                if path.startswith(f"{plan}/"):
                    self._judge_task(plan, path)
