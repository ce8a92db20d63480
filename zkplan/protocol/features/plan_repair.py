"""Repair a plan: put back znodes that somebody deleted by hand.

Each mend is one transaction that proves what it relies on. So it changes nothing that is not lost,
such as a task that a worker claims meanwhile, or an edge that exists.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from ..core.edges import Edge, argument_of, sources_of
from ..core.load import read_all
from ..core.plans_and_queues import make_queues, readable_record
from ..fields import Unproven
from ..interference import folder_restored, untouched
from ..layout import (
    OWN_LIMIT,
    TAKES_FAILURES,
    Entry,
    Paths,
    entry_path,
    failed_entry,
    gate_name,
    key_digest,
    limit_path,
    parse_delayed,
    parse_gate,
    parse_number,
)
from ..records import (
    SOURCE_BYTES,
    Dead,
    count_from_bytes,
    queue_from_bytes,
    ready_to_bytes,
    sources_in,
)
from ..requests import (
    Applied,
    Check,
    Create,
    Delete,
    Multi,
    Node,
    Op,
    ReadChildren,
    ReadData,
    ReadMany,
    SetData,
    Step,
)
from .decisions import CUT
from .gates import ARGUMENT
from .limits import left_permits
from .task_place import RANK, ends_at, last_n, lost_n, place_of, placed, unplaced

#: The most tasks, and the most edges, that one check mends.
TORN_MAX = 1000
#: The error of a dead letter that was put back.
LETTER_LOST = "its dead letter was deleted by hand; its failure is kept as its result"


class Mended(Protocol):
    """The part of a check's report that a mend writes."""

    mended: list[str]
    problems: list[str]
    shut: list[str]


class Mender:
    """Mends one plan while the plan takes tasks, or only reports what it would mend. With `ended`,
    the version of `ready`, it mends an ended plan until the plan is retried or removed."""

    def __init__(
        self, paths: Paths, plan: str, repair: bool, report: Mended, ended: int | None = None
    ) -> None:
        self.paths, self.plan, self.plan_path = paths, plan, paths.plan(plan)
        self.repairs, self._report, self.has_ended = repair, report, ended is not None
        # S7: refused once the plan ends, is retried or is removed.
        self._guard: list[Op] = [Check(f"{self.plan_path}/add-count")]
        if ended is not None:
            self._guard = [
                Check(f"{self.plan_path}/{name}", v) for name, v in (("done", -1), ("ready", ended))
            ]

    def put(self, name: str, problem: str, ops: Sequence[Op]) -> Step[None]:
        """Send one mend. `name` is a znode below the plan, `problem` what is wrong with it."""
        if not self.repairs:
            command = f"`zkplan plan check {int(self.plan)}` mends it"
            self._report.problems.append(f"{name}: {problem}: {command}")
            return
        request = Multi([*self._guard, *ops])
        answer = yield request
        if not isinstance(answer, Applied) and (yield from folder_restored(answer)):
            answer = yield request
        if isinstance(answer, Applied):
            self._report.mended.append(f"{name}: {problem}")
        elif not answer.is_race:  # else it moved meanwhile: the next check looks again
            self._report.shut.append(name)
            self._report.problems.append(f"{name}: {problem}, and cannot be mended: {answer.why}")

    def report(self, name: str, problem: str) -> None:
        """Report a problem that needs a person."""
        self._report.problems.append(f"{name}: {problem}")


def mend_indexes(mender: Mender, children: set[str]) -> Step[None]:
    """Put back the key of the plan. `children` are the children of its znode."""
    plan_path = mender.plan_path
    if "ready" not in children:
        node = yield ReadData(f"{mender.paths.active}/{mender.plan}")
        if node is not None:
            command = f"`zkplan plan mark-ready {int(mender.plan)}`"
            mender.report("ready", f"was deleted, so nothing of the plan runs: {command}")
        return
    node = yield ReadData(plan_path)
    record = readable_record(node.data) if node is not None else None
    if record is None or not record.key:
        return
    path = f"{mender.paths.keys}/{key_digest(record.key)}"
    if (yield ReadData(path)) is None:
        data = f"{mender.plan} {record.key}".encode()
        # S12: a plan that takes tasks has not lost its key to another plan.
        ops: list[Op] = [Create(path, data)]
        if (yield ReadData(mender.paths.keys)) is None:
            ops.insert(0, Create(mender.paths.keys))
        yield from mender.put(path, "was gone, so the key did not name the plan", ops)


def mend_ended(mender: Mender, tasks: array[int]) -> Step[None]:
    """Put back the dead letters and the index entry of a plan that has ended with failures: all its
    tasks have failed. `tasks` are their sorted numbers."""
    yield from mend_left(mender, tasks)
    letters = yield ReadChildren(f"{mender.plan_path}/dead")
    if letters is None:
        yield from mender.put("dead", "was gone", [Create(f"{mender.plan_path}/dead")])
    dead = set(map(int, filter(parse_number, letters or ())))
    yield from mend_places(mender, array("Q", [task for task in tasks if task not in dead]))
    path = failed_entry(mender.plan_path)
    if tasks and (yield ReadData(path)) is None:
        yield from mender.put(path, "was gone, so no list of failed plans had it", [Create(path)])


def mend_limits(mender: Mender, names: Iterable[str]) -> Step[None]:
    """Report the limits in `names` that are gone, and put back the plan's own limit."""
    for name in sorted(names):
        path = limit_path(mender.paths.root, mender.plan, name)
        if (yield ReadData(path)) is not None:
            continue
        if name != OWN_LIMIT:
            command = f"`zkplan limit set {name} SIZE`"
            mender.report(path, f"is missing, so tasks that name it do not run: {command}")
            continue
        node = yield ReadData(mender.plan_path)
        record = readable_record(node.data) if node is not None else None
        size = record.max_running if record is not None else 0
        running = (yield from placed(mender.paths, mender.plan)).values()
        if not size or any(place.state == "running" for place in running):
            # S11: the permits of its claims are gone, and would be given out once more.
            mender.report(path, "is missing: a check puts it back once no task of the plan runs")
        else:
            yield from mender.put(path, "was gone", [Create(path, b"%d" % size)])


def report_gates(mender: Mender) -> Step[None]:
    """Report the gates whose condition is gone: they cannot be opened."""
    names = (yield ReadChildren(mender.paths.gates)) or ()
    gates = [each for each in map(parse_gate, names) if each and each.plan == mender.plan]
    paths = [f"task-{each.entry.task}/gate" for each in gates[:TORN_MAX]]
    nodes = yield from read_all([ReadData(f"{mender.plan_path}/{path}") for path in paths])
    for path, node in zip(paths, nodes, strict=True):
        if node is None:
            name = path.partition("/")[0]
            mender.report(path, f"is missing, so this gate stays shut: skip {name}, or cancel it")


def mend_left(mender: Mender, tasks: array[int]) -> Step[None]:
    """Delete dead letters, delayed entries and gate entries of tasks that are gone. `tasks` are the
    sorted numbers of the tasks that existed before."""
    paths, plan = mender.paths, mender.plan
    dead = f"{mender.plan_path}/dead"
    letters, gates, later = yield ReadMany(
        [ReadChildren(dead), ReadChildren(paths.gates), ReadChildren(paths.delayed)]
    )
    left = [(name, f"{dead}/{name}") for name in letters or () if parse_number(name)]
    entries = [(parse_gate(name), f"{paths.gates}/{name}") for name in gates or ()]
    due = [(parse_delayed(name), f"{paths.delayed}/{name}") for name in later or ()]
    left += [(item.entry.task, path) for item, path in entries if item and item.plan == plan]
    left += [(item.entry.task, path) for item, path in due if item and item.plan == plan]
    left = [each for each in left if place_of(tasks, int(each[0])) is None][:TORN_MAX]
    # A task exists before anything names it, and its number never comes back.
    nodes = yield from read_all([ReadData(paths.task(plan, number)) for number, _ in left])
    for (number, path), node in zip(left, nodes, strict=True):
        if node is None:
            problem = f"was deleted, and {path} still named it"
            yield from mender.put(f"task-{number}", problem, [Delete(path)])


def mend_places(mender: Mender, tasks: array[int]) -> Step[None]:
    """Put published tasks that are in no index back into one."""
    if not tasks:
        return
    names = [f"task-{task:010d}" for task in tasks]
    at = [f"{mender.plan_path}/{name}" for name in names]
    # Read before the indexes: a claim from now on refuses `untouched` (S1).
    nodes = yield from read_all([ReadData(path) for path in at], strict=False)
    tasks = yield from unplaced(mender.paths, mender.plan, tasks)
    for name, path, node in zip(names, at, nodes, strict=True):
        if node is not None and int(name[5:]) in tasks:
            yield from _put_back(mender, name, path, node)


def _put_back(mender: Mender, name: str, path: str, node: Node) -> Step[None]:
    number, plan_path = name[5:], mender.plan_path
    kept = f"{plan_path}/results/{number}"
    reads = (ReadData(f"{path}/ready"), ReadData(kept), ReadChildren(path))
    ready, outcome, children = yield ReadMany(reads)
    if ready is None or children is None or ready.version <= count_from_bytes(ready.data):
        return  # a retry of the plan has put it back
    n, queue = (yield from lost_n(path)), queue_from_bytes(ready.data)
    entry, ops = Entry(RANK, number, n + 1, 0), untouched(path, node)
    if "owner" in children:
        ops.append(Delete(f"{path}/owner"))
    # S11: `untouched` proves that no other client has freed the permits since.
    permits = yield from left_permits(mender.paths, mender.plan, number, queue)
    ops += map(Delete, permits)
    if mender.has_ended or (outcome is not None and "result" not in children):
        a = sum(child.startswith("log-") for child in children)
        letter = Dead(RANK, n, a, name, LETTER_LOST, "", queue)
        ops += [Check(kept)] if outcome is not None else []
        ops.append(Create(f"{plan_path}/dead/{number}", letter.to_bytes()))
        yield from mender.put(f"dead/{number}", "was gone, the task has failed for good", ops)
    elif "gate" in children and ARGUMENT not in children and "result" not in children:
        ops.append(Create(f"{path}/retry-{n}"))
        ops.append(Create(f"{mender.paths.gates}/{gate_name(mender.plan, entry, queue)}"))
        yield from mender.put(name, "its entry under gates was gone", ops)
    else:
        yield from make_queues(plan_path, [queue])
        ops += [Create(f"{path}/retry-{n}"), Create(entry_path(plan_path, queue, entry))]
        yield from mender.put(name, "its entry or claim was gone: it is runnable again", ops)


def mend_edges(mender: Mender, tasks: Sequence[int], nowhere: Sequence[str]) -> Step[None]:
    """Mend the edges of `tasks` that have one end only, and each `ready` that is gone. `nowhere`
    are the paths of `prov-` whose dependent was not among the tasks of the plan."""
    for task in tasks:
        yield from _mend_task(mender, f"task-{task:010d}")
    for prov in nowhere:
        yield from _mend_nowhere(mender, prov)


def _mend_nowhere(mender: Mender, prov: str) -> Step[None]:
    node = yield ReadData(prov)
    if node is None or isinstance(node.data, Unproven):
        return
    at = node.data.find(b"task-")
    name = node.data[at : at + 15].decode(errors="replace")
    # A task exists before an edge leads to it, and its number never comes back. So a task that does
    # not exist after its edge was read is gone for good.
    if (yield ReadData(f"{mender.plan_path}/{name}")) is None:
        below = prov[len(mender.plan_path) + 1 :]
        yield from mender.put(below, f"leads to {name}, which was deleted", [Delete(prov)])


class _Torn(NamedTuple):
    """A task with an edge that has one end only, as it was read."""

    name: str
    path: str
    node: Node
    ready: Node | None
    children: frozenset[str]
    sources: list[str]
    #: The other end of each edge, by the path of its `dep-`.
    ends: dict[str, tuple[str, Edge]]
    #: The sources that exist, as they were before their children were read.
    standing: dict[str, Node]


def _mend_task(mender: Mender, name: str) -> Step[None]:
    found = yield from _read_torn(mender, name)
    if found is None:
        return
    if found.ready is None:
        yield from _mend_ready(mender, found)
        return
    if "result" in found.children:
        return  # it needs no arguments any more
    if CUT in found.children:
        if (yield ReadData(f"{mender.plan_path}/dead/{name[5:]}")) is None:
            problem = f"was deleted, and {name} has not all its arguments: skip it, or cancel it"
            mender.report(f"{name}/result", problem)
        return
    if found.ready.version >= count_from_bytes(found.ready.data):
        for position in range(len(found.sources)):
            if f"arg-{position:010d}" not in found.children:
                problem = f"was deleted, so {name} cannot run: skip it, or cancel it"
                mender.report(f"{name}/arg-{position:010d}", problem)
        return
    for position, source in enumerate(found.sources):
        dep = f"dep-{position:010d}"
        if dep in found.children:
            if f"{found.path}/{dep}" not in found.ends:
                yield from _mend_end(mender, found, found.ready, dep, source)
        elif f"arg-{position:010d}" not in found.children:
            yield from _mend_start(mender, found, found.ready, position, source)


def _read_torn(mender: Mender, name: str) -> Step[_Torn | None]:
    path = f"{mender.plan_path}/{name}"
    node, ready, children = yield ReadMany(
        [ReadData(path), ReadData(f"{path}/ready"), ReadChildren(path)], strict=True
    )
    if node is None or children is None or "incomplete" in children:
        return None
    if isinstance(node.data, Unproven):
        return None  # it fails when it runs, and `values.check_seals` reports it
    positions = len(sources_in(node.data)) // SOURCE_BYTES
    sources = sources_of(node.data, positions)
    at = [f"{mender.plan_path}/task-{source}" for source in dict.fromkeys(sources)]
    # Before their children: an edge that is made meanwhile makes a child.
    nodes = yield from read_all([ReadData(source) for source in at])
    listed = yield from read_all([ReadChildren(source) for source in at])
    provs = [
        f"{source}/{child}"
        for source, names in zip(at, listed, strict=True)
        for child in names or ()
        if child.startswith("prov-")
    ]
    records = yield from read_all([ReadData(prov) for prov in provs])
    ends = dict(ends_at(name[5:], path, provs, records))
    standing = {
        source[-10:]: found for source, found in zip(at, nodes, strict=True) if found is not None
    }
    return _Torn(name, path, node, ready, frozenset(children), sources, ends, standing)


def _mend_end(mender: Mender, torn: _Torn, count: Node, dep: str, source: str) -> Step[None]:
    """Mend a `dep-` without its `prov-`: put back the `prov-`, or deliver the kept result of the
    source."""
    plan_path, ready = mender.plan_path, f"{torn.path}/ready"
    same: list[Op] = [Check(f"{torn.path}/{dep}"), Check(ready, count.version)]
    k, queue = count_from_bytes(count.data), queue_from_bytes(count.data)
    if source in torn.standing:
        fails, n = TAKES_FAILURES in torn.children, 1 + (yield from last_n(torn.path))
        edge = Edge(torn.name[5:], dep[4:], k, RANK, queue, fails, n)
        at, node = f"{plan_path}/task-{source}", torn.standing[source]
        made = f"{at}/prov-{(node.cversion + node.child_count) // 2:010d}"
        # The number proves that the source got no child meanwhile, such as this edge.
        same += [Create(f"{at}/prov-", edge.to_bytes(), sequence=True, becomes=made), Check(made)]
        problem = f"had no other end: task-{source} feeds it again"
        yield from mender.put(f"{torn.name}/{dep}", problem, same)
        return
    kept = f"{plan_path}/results/{source}"
    outcome = yield ReadData(kept)
    if outcome is None or isinstance(outcome.data, Unproven) or outcome.data[2:3] != b"V":
        problem = (
            f"waits for task-{source}, which was deleted and has left no result: skip "
            f"{torn.name}, or cancel it"
        )
        mender.report(f"{torn.name}/{dep}", problem)
        return
    ops: list[Op] = [Check(kept)]
    ops.append(Create(f"{torn.path}/arg-{dep[4:]}", argument_of(source, outcome.data)))
    ops += [Delete(f"{torn.path}/{dep}"), SetData(ready, count.data, count.version)]
    problem = f"had no other end: it gets the result that task-{source} has left"
    yield from mender.put(f"{torn.name}/{dep}", problem, ops)


def _mend_start(mender: Mender, torn: _Torn, count: Node, position: int, source: str) -> Step[None]:
    """Mend a position without `dep-` and argument: put back the `dep-` if its `prov-` exists."""
    dep, arg = f"{torn.path}/dep-{position:010d}", f"{torn.path}/arg-{position:010d}"
    end = torn.ends.get(dep)
    if end is None:
        problem = f"was deleted, so {torn.name} cannot run: skip it, or cancel it"
        mender.report(f"{torn.name}/arg-{position:010d}", problem)
        return
    ops: list[Op] = [Check(end[0]), Check(f"{torn.path}/ready", count.version)]
    # S2: there is no argument, and none can come while the `prov-` exists.
    ops += [Create(arg), Delete(arg), Create(dep, source.encode())]
    yield from mender.put(f"{torn.name}/dep-{position:010d}", "was gone", ops)


def _mend_ready(mender: Mender, torn: _Torn) -> Step[None]:
    """Put back `ready`, with a version that counts the edges that have arrived."""
    path, number = f"{torn.path}/ready", torn.name[5:]
    place = (yield from placed(mender.paths, mender.plan)).get(number)
    if place is not None:
        data = ready_to_bytes(0, place.queue)
        ops: list[Op] = [Create(path, data), SetData(path, data)]
        yield from mender.put(f"{torn.name}/ready", "was gone", [Check(place.path), *ops])
        return
    deps = [child for child in torn.children if child.startswith("dep-")]
    filled = sum(child.startswith("arg-") for child in torn.children)
    ends = [torn.ends.get(f"{torn.path}/{dep}") for dep in deps]
    edges = [end[1] for end in ends if end is not None and end[1].k >= len(deps)]
    if not deps or len(edges) != len(deps) or len(deps) + filled != len(torn.sources):
        mender.report(torn.name, "has no `ready`, so it is not fully defined")
        return
    k, data = edges[0].k, ready_to_bytes(edges[0].k, edges[0].queue)
    # No edge has arrived since: an arrival would make a child.
    ops = [*untouched(torn.path, torn.node), Create(path, data)]
    ops += [SetData(path, data) for _ in range(k - len(deps))]
    yield from mender.put(f"{torn.name}/ready", "was gone", ops)
