"""Prove that no task of a plan can run, and list its dead tasks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from ..errors import (
    UNREACHABLE,
    PayloadUndecodable,
    PlanFailed,
    PlanStuck,
    ZooKeeperError,
)
from ..protocol.core.load import read_all
from ..protocol.core.plan_life import PlanStatus
from ..protocol.core.plan_life import status as read_status
from ..protocol.core.plans_and_queues import (
    index_names,
    names_on_claims_nodes,
    read_entries,
    read_queues,
)
from ..protocol.features.plan_check import check
from ..protocol.layout import (
    PENDING,
    Paths,
    limits_in,
    number_of,
    parse_claim,
    parse_delayed,
    parse_gate,
)
from ..protocol.records import Dead, Failure
from ..protocol.requests import ReadChildren, ReadData, ReadMany, Step
from ..protocol.transactions import READS_PER_REQUEST, pending_dependents
from ..transport import Transport
from ..values.codec import FAILURE, LOG
from ..values.connection import Connection
from .dependencies import NAMED, dependencies

FAILURES_SHOWN, REASONS_SHOWN = 20, 5
#: How many runnable tasks' logs are read to find out why no worker takes the tasks.
LOOKED_AT = 5


def may_stand(status: PlanStatus) -> bool:
    """Whether it may be that no task of the plan can run, so that a proof is worth its reads."""
    return status.state == "running" and not status.runnable and status.tasks > 0


def status_of(client: Connection, plan_path: str) -> PlanStatus:
    """See Plan.status. The state is `failed` only if it is proved that nothing can run."""
    run = client.transport.run
    status = run(read_status(plan_path))
    if not (may_stand(status) and status.dead):
        return status
    try:
        dead = run(dead_if_deadlocked(client.paths, plan_path))
    except UNREACHABLE:
        raise
    except ZooKeeperError:  # some znodes may not be read here
        return status
    after = run(read_status(plan_path))
    return after._replace(state="failed") if dead and after == status else after


def no_worker(client: Connection) -> str:
    return f"no worker is registered under {client.root}; start one: {client.command('worker')}"


def not_taken(client: Connection, plan_path: str, count: int) -> str:
    """Text for a plan whose runnable tasks no worker takes, with the reason if a worker logged
    one."""
    entries = client.transport.run(read_entries(plan_path))
    runnable = sorted(entry.task for _, entry in entries)
    if entries and all(limits_in(lane) for lane, _ in entries):
        ask = client.command(f"plan why {int(number_of(plan_path))}")
        return f"{count} of its tasks runnable, but their limits are full (`{ask}` says more)"
    told = (refusal(client, f"{plan_path}/task-{task}") for task in runnable[:LOOKED_AT])
    why = next(filter(None, told), "they cannot decode these tasks, or have just started")
    if runnable:
        show = client.command(f"task show {int(number_of(plan_path))} {int(runnable[0])}")
        why += f" (`{show}` says more)"
    return f"{count} of its tasks runnable, but no worker takes them: {why}"


def refusal(client: Connection, task: str) -> str:
    """The reason that a worker logged for not running that task; empty if none can be read."""
    names = client.transport.ask(ReadChildren(task)) or ()
    logs = sorted(name for name in names if name.startswith("log-"))
    node = client.transport.ask(ReadData(f"{task}/{logs[-1]}")) if logs else None
    if node is None:
        return ""
    name = task.rpartition("/")[2]
    try:
        kind, body = client.codec.open(FAILURE + LOG, node.data)
        if kind == LOG:  # a progress note
            return ""
        failure = Failure.from_bytes(body)
    except PayloadUndecodable:
        return (
            f"{name} has a log that cannot be read here: a worker that has another secret "
            "(secret-files) than this client cannot decode the task"
        )
    if failure.kind == "StoreUnavailable":
        return f"{name} waits for the store of {failure.worker}: {failure.message}"
    if failure.kind != "PayloadUndecodable":
        return ""
    return f"{name} cannot be decoded by {failure.worker}: {failure.message}"


def dead_if_deadlocked(paths: Paths, plan_path: str) -> Step[int | None]:
    """Prove that no task of a plan can run. Returns the number of dead tasks, or None if one can.

    A task can run if it is runnable, claimed, delayed, a gate that waits, or about to be published.
    Raises ZooKeeperError if this client may not read a znode that may hold a task of the plan.

    The proof holds if the status of the plan is the same before and after it, for then no task was
    committed. If two reads of the queues show the same last changes, no task entered or left a
    queue between them. So a task that was claimed all the time is seen on its claims node. A task
    that was published as a claim, as a pending record demanded, is seen when the claims nodes are
    read again. A task that was delayed or died meanwhile is seen in its new place, which is read
    last.
    """
    first = yield from read_queues(plan_path)
    pending_records = yield from _pending_where_nothing_is_claimed(paths, plan_path)
    if pending_records is None or (yield from _is_owed(plan_path, pending_records)):
        return None
    if (yield from _pending_where_nothing_is_claimed(paths, plan_path)) is None:
        return None
    reads = (
        *(ReadChildren(paths.delayed), ReadChildren(paths.gates)),
        ReadData(f"{plan_path}/dead"),
    )
    later, gates, dead = yield ReadMany(reads, strict=True)
    second = yield from read_queues(plan_path)  # last: what was delayed may be runnable by now
    changes = [{queue: node.pzxid for queue, node in each.items()} for each in (first, second)]
    if not first or changes[0] != changes[1] or any(n.child_count for n in second.values()):
        return None
    entries = [*map(parse_gate, gates or ()), *map(parse_delayed, later or ())]
    if any(entry is not None and entry.plan == number_of(plan_path) for entry in entries):
        return None
    return dead.child_count if dead is not None else 0


def _pending_where_nothing_is_claimed(paths: Paths, plan_path: str) -> Step[list[str] | None]:
    """The pending records on all claims nodes, or None if a claim of the plan is on one of them."""
    found = []
    for worker, name in (yield from names_on_claims_nodes(paths, strict=True)):
        claim = parse_claim(name)
        if claim is not None and claim.plan == number_of(plan_path):
            return None
        if name.startswith(PENDING):
            found.append(f"{paths.claims_of(worker)}/{name}")
    return found


def watch_a_claim(paths: Paths, plan_path: str) -> Step[None]:
    """Set a watch on one claim of the plan, if there is one: its end wakes this client."""
    for worker, name in (yield from names_on_claims_nodes(paths)):
        claim = parse_claim(name)
        if claim is None or claim.plan != number_of(plan_path):
            continue
        if (yield ReadData(f"{paths.claims_of(worker)}/{name}", watch=True)) is not None:
            return


def _is_owed(plan_path: str, pending_records: list[str]) -> Step[bool]:
    """Whether one of `pending_records` names a task of the plan that is complete and not published.

    A settled pending record proves nothing: its worker deletes it only with the next commit. The
    tasks that it names are claimed or runnable by then.
    """
    nodes = yield from read_all([ReadData(path) for path in pending_records])
    read = [node for node in nodes if node is not None]
    number = number_of(plan_path)
    named = [d for node in read for d in pending_dependents(node.data) if d.plan == number]
    ready = yield from read_all([ReadData(f"{plan_path}/task-{d.task}/ready") for d in named])
    return any(node and node.version == d.k for d, node in zip(named, ready, strict=True))


def raise_in_vain(client: Connection, status: PlanStatus, dead: int, repair: bool = True) -> str:
    """Raise the error that says why no task of the plan can run; `dead` tasks are out of attempts.

    Returns instead if a repair lets the plan run, or would if this client were allowed to make it
    (then with the reason why it is not). Returns also if the plan has changed since `status`: the
    check may have seen an add half-way, or another check may have published a waiting task.
    `status` is older than the proof, so its number of dead tasks is not used.
    """
    plan_path, number = status.path, number_of(status.path)
    if dead:
        retry = client.command(f"plan retry {int(number)}")
        raise failed(
            client,
            plan_path,
            f"{plan_path} cannot go on: {_deadlock_text(dead, status.tasks)} "
            f"(`{retry}` gives another chance)",
        )
    report = client.transport.run(check(client.paths, number, repair))
    if report.shut:
        return f"{plan_path}: {report.problems[0]}"  # another client may be allowed to repair it
    if report.published or report.created:
        return ""  # somebody had deleted znodes by hand, and now it runs
    if client.transport.run(dead_if_deadlocked(client.paths, plan_path)) != 0:
        return ""
    if client.transport.run(read_status(plan_path)) != status:
        return ""
    if report.problems or report.waiting:
        waiting = list(report.waiting.items())[:REASONS_SHOWN]
        reasons = report.problems or [
            _waits_for(client, plan_path, name, deps) for name, deps in waiting
        ]
        shown = "; ".join(reasons[:REASONS_SHOWN])
        one = status.tasks == 1
        remain = "one task remains and cannot" if one else f"{status.tasks} tasks remain, none can"
        raise PlanStuck(plan_path, f"{plan_path} can never drain: {remain} run; {shown}")
    return ""


def _waits_for(client: Connection, plan_path: str, name: str, deps: list[str]) -> str:
    found = dependencies(client.transport, plan_path, name.removeprefix("task-"), deps)
    # An edge that was changed by hand may not say which task it leads to.
    named = [f"task-{number}" for number in found.tasks] or deps[:NAMED]
    more = f" and {found.more:,} more" if found.tasks and found.more else ""
    return f"{name} waits for {', '.join(named)}{more}"


def _deadlock_text(dead: int, tasks: int) -> str:
    """
    >>> _deadlock_text(1, 1), _deadlock_text(2, 2)
    ('its only unfinished task is out of attempts', 'all 2 unfinished tasks are out of attempts')
    >>> _deadlock_text(1, 3)
    '1 of its 3 unfinished tasks is out of attempts, the others depend on it'
    """
    if tasks <= 1:
        return "its only unfinished task is out of attempts"
    if dead >= tasks:
        return f"all {tasks} unfinished tasks are out of attempts"
    verb, them = ("is", "it") if dead == 1 else ("are", "them")
    rest = "the other depends" if tasks - dead == 1 else "the others depend"
    return f"{dead} of its {tasks} unfinished tasks {verb} out of attempts, {rest} on {them}"


def failed(client: Connection, plan_path: str, message: str) -> PlanFailed:
    """The error, with the first failures by the names of their tasks.

    The number of a task is added to a name that another one has.
    """
    failures: dict[str, str] = {}
    for number, letter in islice(dead_letters(client.transport, plan_path), FAILURES_SHOWN):
        name = letter.name or f"task-{number}"
        failures[f"{name} (task-{number})" if name in failures else name] = letter.error
    shown = "; ".join(f"{name}: {error}" for name, error in list(failures.items())[:3])
    return PlanFailed(plan_path, f"{message}: {shown}" if shown else message, failures)


# ---- List the dead tasks of a plan.


#: The beginning of the error of a task that failed because a task that it depends on failed.
UPSTREAM = "UpstreamFailed"
#: The most dead letters that are read to find some whose tasks failed by themselves.
LETTERS_LOOKED_AT = 1000


def dead_letters(transport: Transport, plan_path: str) -> Iterator[tuple[str, Dead]]:
    """See Plan.dead. Raises PlanNotFound at once. Reads the letters during the iteration."""
    names = transport.run(index_names(plan_path, "dead"))
    chunks = (names[at : at + READS_PER_REQUEST] for at in range(0, len(names), READS_PER_REQUEST))
    return (
        (number, Dead.from_bytes(node.data))
        for chunk in chunks
        for number, node in zip(
            chunk,
            transport.ask(ReadMany([ReadData(f"{plan_path}/dead/{each}") for each in chunk])),
            strict=True,
        )
        if node is not None  # else it was retried meanwhile
    )


def first_failures(transport: Transport, plan_path: str, most: int) -> list[tuple[str, Dead]]:
    """At most `most` of the first LETTERS_LOOKED_AT dead letters. Those of tasks that failed by
    themselves come first."""
    letters = list(islice(dead_letters(transport, plan_path), LETTERS_LOOKED_AT))
    return sorted(letters, key=lambda item: item[1].error.startswith(UPSTREAM))[:most]
