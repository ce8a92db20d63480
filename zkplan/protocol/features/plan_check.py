"""The background check of a plan: read it in batches, have it repaired, report the rest.

Correctness never depends on the check. It puts back znodes that somebody deleted by hand
(`plan_repair`). It also reports what no worker can repair: damaged records, and tasks whose author
died while it defined them.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from ..core.load import read_all
from ..core.plan_indexes import cleared, entering
from ..core.plan_life import cascades
from ..core.plans_and_queues import make_queues
from ..fields import Unproven
from ..layout import (
    HISTORY,
    PLAN_FIXED,
    QUEUES,
    TAKES_FAILURES,
    Entry,
    Paths,
    active_entry,
    entry_path,
    limits_in,
    number_of,
    parse_number,
    parse_task,
)
from ..records import control_from_bytes, count_from_bytes, queue_from_bytes
from ..requests import (
    Applied,
    Check,
    Create,
    Delete,
    Multi,
    Node,
    ReadChildren,
    ReadData,
    ReadMany,
    Reason,
    Refused,
    SetData,
    Step,
)
from ..transactions import READS_PER_REQUEST
from .decisions import send_failures
from .plan_repair import (
    TORN_MAX,
    Mender,
    mend_edges,
    mend_ended,
    mend_indexes,
    mend_left,
    mend_limits,
    mend_places,
    report_gates,
)
from .task_place import last_n, place_of, unplaced

TASKS_PER_BATCH = 300
#: Other children of a plan, which it has only at times.
_PLAN_OTHERS = ("ready", "done", QUEUES, HISTORY)
#: The most foreign znodes that a report names.
STRANGE_MAX = 20
#: The most waiting tasks that a report names, the oldest first.
WAITING_MAX = 1000


@dataclass(slots=True)
class Report:
    """The result of a check.

    `published`, `created` and `mended` are repairs; `problems` need a person. `waiting` maps
    waiting tasks to their edges, at most WAITING_MAX tasks; `takers` does so for tasks that take
    failures. `shut` lists the tasks, or the plan itself, that need a repair which an access list
    forbids to this client; `problems` names them, too. `unreferenced` are the blobs in the store
    that nothing needs, `deleted` the blobs that the check deleted. `unread` counts the blobs that
    were not compared with their digests, because there are too many. `unchecked` is empty, or says
    why the check looked at no value in a store.
    """

    tasks: int = 0
    done: bool = False
    created: list[str] = field(default_factory=list)
    published: list[str] = field(default_factory=list)
    mended: list[str] = field(default_factory=list)
    shut: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    waiting: dict[str, list[str]] = field(default_factory=dict)
    takers: dict[str, list[str]] = field(default_factory=dict)
    unreferenced: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    unread: int = 0
    unchecked: str = ""


def check(paths: Paths, plan: str, repair: bool = True) -> Step[Report]:
    """Read the whole plan once, publish complete tasks that no other client will publish, and put
    back what somebody has deleted by hand."""
    report = Report()
    plan_path = paths.plan(plan)
    names = yield ReadChildren(plan_path)
    if names is None or ("done" in names and not (yield from _is_forged(f"{plan_path}/done"))):
        report.done = True
        if names is not None:
            yield from _check_ended(paths, plan, repair, names, report)
        return report
    others = {name for name in names if parse_task(name) is None}
    if repair:
        yield from _restore(plan_path, others, report)
    tasks = _numbers(names)
    del names
    report.tasks = len(tasks)
    for name in sorted(others.difference(PLAN_FIXED, _PLAN_OTHERS))[:STRANGE_MAX]:
        report.problems.append(
            f"{name}: is not a znode of zkplan, and counts as a task that never ends: delete it"
        )
    mender = Mender(paths, plan, repair, report)
    yield from mend_indexes(mender, others)
    yield from _check_tasks(mender, tasks, report)
    if repair:
        yield from _deliver_failures(paths, plan, report)
    return report


def _numbers(names: list[str]) -> array[int]:
    """The numbers of the tasks, sorted, in eight bytes each: a check of a huge plan stays small."""
    return array("Q", sorted(int(found) for name in names if (found := parse_task(name))))


def _check_ended(
    paths: Paths, plan: str, repair: bool, names: list[str], report: Report
) -> Step[None]:
    plan_path = paths.plan(plan)
    if repair:
        yield from _leave_index(plan_path, report)
    ready = yield ReadData(f"{plan_path}/ready")
    tasks = _numbers(names)
    if ready is None or isinstance(ready.data, Unproven) or not tasks:
        return
    if control_from_bytes(ready.data) != "cancelled":  # else it is being removed
        yield from mend_ended(Mender(paths, plan, repair, report, ready.version), tasks)


@dataclass(slots=True)
class _Found:
    """What a walk over the tasks of a plan has found. Tasks are numbers: there may be very many.

    `suspects` wait for nothing, `torn` lack a `dep-`, an argument or `ready`. `loose` says how many
    more `dep-` each task has than there are `prov-` that lead to it. `nowhere` are the paths of
    `prov-` that lead to no task, `limits` the limits that tasks name.
    """

    tasks: array[int]
    loose: array[int]
    suspects: array[int] = field(default_factory=lambda: array("Q"))
    torn: array[int] = field(default_factory=lambda: array("Q"))
    nowhere: list[str] = field(default_factory=list)
    limits: set[str] = field(default_factory=set)


def _check_tasks(mender: Mender, tasks: array[int], report: Report) -> Step[None]:
    paths, plan = mender.paths, mender.plan
    found = _Found(tasks, array("i", [0]) * len(tasks))
    for start in range(0, len(tasks), TASKS_PER_BATCH):
        batch = [f"task-{task:010d}" for task in tasks[start : start + TASKS_PER_BATCH]]
        yield from _walk(mender.plan_path, batch, found, report)
    suspects = found.suspects
    if suspects:
        suspects = yield from unplaced(paths, plan, suspects)
    lost = array("Q")
    for task in suspects:
        if not (yield from _publish_forgotten(mender, f"task-{task:010d}", report)):
            lost.append(task)
    yield from mend_left(mender, tasks)
    yield from report_gates(mender)
    yield from mend_limits(mender, found.limits)
    yield from mend_places(mender, lost[:TORN_MAX])
    # Tasks with a one-ended edge first: in `torn`, K may count an arrival that fills no position.
    torn = array("Q", (task for task, count in zip(tasks, found.loose, strict=True) if count))
    torn.extend(found.torn)
    yield from mend_edges(mender, sorted(set(torn[:TORN_MAX])), found.nowhere)


def _walk(plan_path: str, batch: list[str], found: _Found, report: Report) -> Step[None]:
    """Look at these tasks, and read the edges that they deliver along."""
    reads: list[ReadData | ReadChildren] = []
    for name in batch:
        reads += (ReadData(f"{plan_path}/{name}/ready"), ReadChildren(f"{plan_path}/{name}"))
    answers = yield ReadMany(reads)
    edges: list[tuple[str, str]] = []
    for name, ready, children in zip(batch, answers[::2], answers[1::2], strict=True):
        if children is None:
            continue
        if _inspect(report, found.suspects, name, ready, children):
            found.torn.append(int(number_of(name)))
        if ready is not None:
            if b"~" in ready.data:
                found.limits.update(limits_in(queue_from_bytes(ready.data)))
            at = place_of(found.tasks, int(number_of(name)))
            if at is not None:
                found.loose[at] += sum(child.startswith("dep-") for child in children)
        edges += [(name, child) for child in children if child.startswith("prov-")]
    yield from _read_edges(plan_path, edges, found)


def _is_forged(path: str) -> Step[bool]:
    """Whether the znode is not sealed for its place, so that nothing may be concluded from it."""
    node = yield ReadData(path)
    return node is not None and isinstance(node.data, Unproven)


def _deliver_failures(paths: Paths, plan: str, report: Report) -> Step[None]:
    """Send failures of dead tasks along edges that were added just before the tasks died."""
    plan_path, takers = paths.plan(plan), report.takers
    if report.waiting and report.waiting != takers:
        node, dead = yield ReadMany([ReadData(plan_path), ReadData(f"{plan_path}/dead")])
        if node is not None and dead is not None and dead.child_count and cascades(node):
            takers = report.waiting
    deps = [f"{plan_path}/{name}/{dep}" for name, found in takers.items() for dep in found]
    nodes = yield from read_all([ReadData(dep) for dep in deps], strict=False)
    sources = [parse_number(node.data.decode(errors="replace")) for node in nodes if node]
    published = yield from send_failures(paths, plan, filter(None, sources))
    report.published += [f"task-{task}" for task in published]


def _restore(plan_path: str, names: set[str], report: Report) -> Step[None]:
    """Put back the fixed children of a plan and its index entry."""
    if "done" in names or "ready" not in names:
        return
    entry_path = active_entry(plan_path)
    ready, entry = yield ReadMany([ReadData(f"{plan_path}/ready"), ReadData(entry_path)])
    missing = [name for name in PLAN_FIXED if name not in names]
    if entry is not None and not missing:
        return
    if ready is None or isinstance(ready.data, Unproven):
        return  # it may be cancelled
    if control_from_bytes(ready.data) == "cancelled":
        return  # cancelled plans have no `add-count`
    # All in one transaction, because `finish` counts the fixed children and must never see only
    # some. And only while the plan is not done: a late copy would open a finished plan for adds
    # again.
    ops = entering(plan_path, ready)
    if entry is not None:
        ops[-1] = Check(entry_path)
    ops += [Create(f"{plan_path}/{name}") for name in missing]
    answer = yield Multi(ops)
    if isinstance(answer, Applied):
        report.created += missing if entry is not None else [*missing, "its entry in the index"]
    else:
        yield from _not_repaired(plan_path, answer, report)


def _not_repaired(plan_path: str, answer: Refused, report: Report) -> Step[None]:
    """Leave what others changed meanwhile to the next check; report a missing right."""
    if not (yield from cleared(plan_path, answer)) and answer.reason is Reason.NO_AUTH:
        report.shut.append(plan_path)
        report.problems.append(f"the znodes that the plan needs cannot be put back: {answer.why}")


def _leave_index(plan_path: str, report: Report) -> Step[None]:
    """Delete an index entry that somebody made for a plan that is done. The plan stays done."""
    entry_path = active_entry(plan_path)
    if (yield ReadData(entry_path)) is not None:
        # S14: the plan may be retried meanwhile.
        answer = yield Multi([Check(f"{plan_path}/done"), Delete(entry_path)])
        if not isinstance(answer, Applied):
            yield from _not_repaired(plan_path, answer, report)


def _inspect(
    report: Report, suspects: array[int], name: str, ready: Node | None, children: list[str]
) -> bool:
    """Note what to do about a task. Returns whether one of its edges or arguments, or its
    `ready`, is missing."""
    if ready is None:
        return True
    k = count_from_bytes(ready.data)
    deps = sorted(child for child in children if child.startswith("dep-"))
    if "incomplete" in children:
        report.problems.append(
            f"{name}: is still being defined (a join too wide for one transaction)"
        )
    elif k < 0:
        report.problems.append(f"{name}: its `ready` does not hold K, the number of its edges")
    elif deps:
        if len(report.waiting) < WAITING_MAX:
            report.waiting[name] = deps
        if TAKES_FAILURES in children and len(report.takers) < WAITING_MAX:
            report.takers[name] = deps
    else:
        suspects.append(int(number_of(name)))
    filled = sum(child.startswith("arg-") for child in children)
    return not {"incomplete", "result"} & set(children) and filled + len(deps) < k


def _read_edges(plan_path: str, edges: list[tuple[str, str]], found: _Found) -> Step[None]:
    """Note for each edge that one more `prov-` leads to its dependent, or leads nowhere."""
    for start in range(0, len(edges), READS_PER_REQUEST):
        chunk = edges[start : start + READS_PER_REQUEST]
        nodes = yield ReadMany([ReadData(f"{plan_path}/{name}/{prov}") for name, prov in chunk])
        for (name, prov), node in zip(chunk, nodes, strict=True):
            # An unsealed `prov-` leads nowhere: its task fails, and `check_seals` reports it.
            if node is not None and not isinstance(node.data, Unproven):
                at = node.data.find(b"task-")
                fed = parse_task(node.data[at : at + 15].decode(errors="replace"))
                if at < 0 or fed is None:
                    continue
                dependent = place_of(found.tasks, int(fed))
                if dependent is not None:
                    found.loose[dependent] -= 1
                elif len(found.nowhere) < TORN_MAX:
                    found.nowhere.append(f"{plan_path}/{name}/{prov}")


def _publish_forgotten(mender: Mender, name: str, report: Report) -> Step[bool]:
    """Publish a complete task that is in no index. The compare-and-set from K to K+1 lets only one
    client win.

    Returns False if the task was published before: somebody has deleted its place.
    """
    plan_path = mender.plan_path
    ready = yield ReadData(f"{plan_path}/{name}/ready")
    if ready is None:
        return True  # finished meanwhile
    k = count_from_bytes(ready.data)
    if ready.version < k:
        return True  # `mend_edges` looks at it
    if ready.version > k:
        return False
    if mender.repairs:
        n, queue = 1 + (yield from last_n(f"{plan_path}/{name}")), queue_from_bytes(ready.data)
        entry = Entry("5000", number_of(name), n, 0)
        yield from make_queues(plan_path, [queue])
        answer = yield Multi(
            [
                # A plan without `add-count` takes no more tasks.
                Check(f"{plan_path}/add-count"),
                SetData(f"{plan_path}/{name}/ready", ready.data, k),
                Create(entry_path(plan_path, queue, entry)),
            ]
        )
        if not isinstance(answer, Applied):
            if not answer.is_race:
                report.shut.append(name)
                report.problems.append(
                    f"{name}: can be run, but is in no index and cannot be put there: {answer.why}"
                )
            return True  # published or finished meanwhile, or left as it was
    report.published.append(name)
    return True
