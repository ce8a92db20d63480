"""Why a plan does not go on: the proof that nothing of it can run, and what to tell who waits."""

from __future__ import annotations

from itertools import islice

from ..connection import Connection
from ..errors import UNREACHABLE, PayloadUndecodable, PlanFailed, PlanStuck, ZooKeeperError
from ..protocol.check import check
from ..protocol.control import PlanStatus
from ..protocol.control import status as read_status
from ..protocol.layout import PENDING, Paths, number_of, parse_claim, parse_delayed, parse_entry
from ..protocol.records import Failure
from ..protocol.requests import ReadChildren, ReadData, ReadMany, Step
from ..protocol.shared import pending_dependents
from ..serialization.codec import FAILURE
from .dead_letters import dead_letters
from .neighbours import NAMED, dependencies

FAILURES_SHOWN, REASONS_SHOWN = 20, 5
#: Runnable tasks whose logs are looked at for the reason why nobody takes them.
LOOKED_AT = 5
#: A request for more reads than some ten thousand is larger than a server takes.
READS_MAX = 1000


def may_stand(status: PlanStatus) -> bool:
    return status.state == "running" and not status.runnable and status.tasks > 0


def status_of(client: Connection, plan_path: str) -> PlanStatus:
    """See Plan.status. A plan is called failed only where that is proved."""
    run = client.transport.run
    status = run(read_status(plan_path))
    if not (may_stand(status) and status.dead):
        return status
    try:
        dead = run(dead_at_standstill(client.paths, plan_path))
    except UNREACHABLE:
        raise
    except ZooKeeperError:  # this client may not read what may hold a task of it
        return status
    after = run(read_status(plan_path))
    return after._replace(state="failed") if dead and after == status else after


def no_worker(client: Connection) -> str:
    return f"no worker is registered under {client.root}; start one: {client.command('worker')}"


def not_taken(client: Connection, plan_path: str, count: int) -> str:
    """There are workers, and none takes the runnable tasks: with the reason, where one told it."""
    names = client.transport.ask(ReadChildren(f"{plan_path}/runnable")) or ()
    runnable = sorted(entry.task for name in names if (entry := parse_entry(name)) is not None)
    told = (_refusal(client, f"{plan_path}/task-{task}") for task in runnable[:LOOKED_AT])
    why = next(filter(None, told), "they cannot decode them, or are only starting")
    if runnable:
        show = client.command(f"task show {int(number_of(plan_path))} {int(runnable[0])}")
        why += f" (`{show}` tells more)"
    return f"{count} of its tasks runnable, and none of the workers takes them: {why}"


def _refusal(client: Connection, task: str) -> str:
    """What a worker wrote that could not decode that task; empty where none has, or not for us."""
    names = client.transport.ask(ReadChildren(task)) or ()
    logs = sorted(name for name in names if name.startswith("log-"))
    node = client.transport.ask(ReadData(f"{task}/{logs[-1]}")) if logs else None
    if node is None:
        return ""
    try:
        failure = Failure.from_bytes(client.codec.open(FAILURE, node.data)[1])
    except PayloadUndecodable:  # a progress note, or signed with another secret
        return ""
    if failure.kind != "PayloadUndecodable":
        return ""
    name = task.rpartition("/")[2]
    return f"{name} cannot be decoded by {failure.worker}: {failure.message}"


def dead_at_standstill(paths: Paths, plan_path: str) -> Step[int | None]:
    """How many dead tasks a plan has of which nothing is runnable, claimed, delayed or about to be
    published; None of one that goes on.

    Raises ZooKeeperError where this client may not read what may hold a task of the plan. For who
    finds the status of the plan the same before and after it: no task was committed then. Between
    two reads of `runnable` that show the same last change no task entered or left it. So a task
    that was claimed all the time is seen on its claims node; one that was published as a claim, by
    what a pending record owes, at the second look at the claims nodes; one that was delayed or died
    meanwhile where it stands since, for that is read last.
    """
    runnable = f"{plan_path}/runnable"
    first = yield ReadData(runnable)
    pending_records = yield from _pending_where_nothing_is_claimed(paths, plan_path)
    if pending_records is None or (yield from _is_owed(plan_path, pending_records)):
        return None
    if (yield from _pending_where_nothing_is_claimed(paths, plan_path)) is None:
        return None
    reads = ReadChildren(paths.delayed), ReadData(f"{plan_path}/dead")
    later, dead, second = yield ReadMany([*reads, ReadData(runnable)], strict=True)
    if first is None or second is None or first.pzxid != second.pzxid or second.child_count:
        return None
    delayed = map(parse_delayed, later or ())
    if any(each is not None and each.plan == number_of(plan_path) for each in delayed):
        return None
    return dead.child_count if dead is not None else 0


def _pending_where_nothing_is_claimed(paths: Paths, plan_path: str) -> Step[list[str] | None]:
    """The pending records on all claims nodes; None where a claim of the plan stands on one of
    them."""
    claims_nodes = (yield ReadChildren(paths.claims)) or []
    held = yield ReadMany(
        [ReadChildren(paths.claims_of(claims_node)) for claims_node in claims_nodes], strict=True
    )
    found = []
    for claims_node, names in zip(claims_nodes, held, strict=True):
        for name in names or ():
            claim = parse_claim(name)
            if claim is not None and claim.plan == number_of(plan_path):
                return None
            if name.startswith(PENDING):
                found.append(f"{paths.claims_of(claims_node)}/{name}")
    return found


def _is_owed(plan_path: str, pending_records: list[str]) -> Step[bool]:
    """Whether one of `pending_records` names a task of the plan that is complete and not published.

    A pending record that was settled says nothing: its worker leaves it until its next commit. What
    it named is claimed or runnable since.
    """
    nodes = yield ReadMany([ReadData(path) for path in pending_records], strict=True)
    read = [node for node in nodes if node is not None]
    number = number_of(plan_path)
    named = [d for node in read for d in pending_dependents(node.data) if d.plan == number]
    for start in range(0, len(named), READS_MAX):
        chunk = named[start : start + READS_MAX]
        reads = [ReadData(f"{plan_path}/task-{d.task}/ready") for d in chunk]
        ready = yield ReadMany(reads, strict=True)
        if any(node and node.version == d.k for d, node in zip(chunk, ready, strict=True)):
            return True
    return False


def raise_in_vain(client: Connection, status: PlanStatus, dead: int, repair: bool = True) -> str:
    """Nothing of the plan can run, and so many tasks are dead: say why.

    Returns where a repair lets it run, or would (then with what keeps this client from it), and
    where it has changed since that status: the check may have met the tasks of an add half-way, or
    another one has published what it saw waiting. The status is from before the proof, so that its
    number of dead ones is not asked.
    """
    plan_path, number = status.path, number_of(status.path)
    if dead:
        retry = client.command(f"plan retry {int(number)}")
        raise failed(
            client,
            plan_path,
            f"{plan_path} cannot go on: {_standstill(dead, status.tasks)} "
            f"(`{retry}` gives another chance)",
        )
    report = client.transport.run(check(client.paths, number, repair))
    if report.shut:
        return f"{plan_path}: {report.problems[0]}"  # another client's check may let it run
    if report.published or report.created:
        return ""  # it was built by plain creates; now it runs
    if client.transport.run(dead_at_standstill(client.paths, plan_path)) != 0:
        return ""
    if client.transport.run(read_status(plan_path)) != status:
        return ""
    if report.problems or report.waiting:
        waiting = list(report.waiting.items())[:REASONS_SHOWN]
        reasons = report.problems or [
            _waits_for(client, plan_path, name, deps) for name, deps in waiting
        ]
        shown = "; ".join(reasons[:REASONS_SHOWN])
        raise PlanStuck(plan_path, f"{plan_path} can never drain: {_remain(status.tasks)}; {shown}")
    return ""


def _waits_for(client: Connection, plan_path: str, name: str, deps: list[str]) -> str:
    found = dependencies(client.transport, plan_path, name.removeprefix("task-"), deps)
    # The edges of another client need not say which task they lead to.
    named = [f"task-{number}" for number in found.tasks] or deps[:NAMED]
    more = f" and {found.more:,} more" if found.tasks and found.more else ""
    return f"{name} waits for {', '.join(named)}{more}"


def _remain(tasks: int) -> str:
    return (
        "one task remains and cannot run" if tasks == 1 else f"{tasks} tasks remain, none can run"
    )


def _standstill(dead: int, tasks: int) -> str:
    """
    >>> _standstill(1, 1), _standstill(2, 2)
    ('its only unfinished task is out of attempts', 'all 2 unfinished tasks are out of attempts')
    >>> _standstill(1, 3)
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
    """`failures` are by name, those after the first of a name by name and number."""
    failures: dict[str, str] = {}
    for number, letter in islice(dead_letters(client.transport, plan_path), FAILURES_SHOWN):
        name = letter.name or f"task-{number}"
        failures[f"{name} (task-{number})" if name in failures else name] = letter.error
    shown = "; ".join(f"{name}: {error}" for name, error in list(failures.items())[:3])
    return PlanFailed(plan_path, f"{message}: {shown}" if shown else message, failures)
