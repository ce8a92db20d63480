"""Wait for the result of one task, and read the results of many in batches while their plan
runs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from ..basics.log import get_logger
from ..basics.public_calls import Duration
from ..basics.text import count
from ..errors import (
    ForeignTask,
    PayloadUndecodable,
    PlanCancelled,
    PlanFailed,
    PlanNotFound,
    ResultNotKept,
    StoredValueLost,
    TaskFailed,
    WaitTimeout,
)
from ..protocol.core.load import read_all
from ..protocol.core.plan_life import PlanStatus
from ..protocol.core.plan_life import status as read_status
from ..protocol.fields import require_proven
from ..protocol.layout import parse_task
from ..protocol.records import Failure, control_from_bytes
from ..protocol.requests import ReadChildren, ReadData, ReadMany
from ..transport import Transport
from ..values.blobs import Read, side_by_side
from ..values.codec import FAILURE, VALUE, Codec, task_options
from ..values.connection import Connection
from ..values.plan_values import Values
from ..views.outcomes import outcome_nodes
from .completion import Completed, Group
from .handles import HandleT, TaskHandle
from .patience import Patience, checked_timeout
from .waiting import wait_for_plan

#: Definitions to read in one batch, in search of a task that keeps its result.
TASKS_PER_BATCH = 300


def refuse_unkept(
    client: Connection, plan_path: str, tasks: Mapping[str, TaskHandle], if_any: bool = True
) -> None:
    """Raise ResultNotKept if it is known now that tasks without an outcome will not keep their
    results: with `if_any` for a single such task, else only if all `tasks` are such. `tasks` is by
    number."""
    asked = {number: task for number, task in tasks.items() if task._is_kept() is not True}
    reads: list[ReadData | ReadChildren] = []
    for number in asked:
        path = f"{plan_path}/task-{number}"
        # An outcome may be large, and only its existence counts.
        reads += (ReadChildren(f"{plan_path}/results/{number}"), ReadData(path), ReadChildren(path))
    answers = client.transport.run(read_all(reads))
    unkept = []
    for at, number in enumerate(asked):
        outcome, node, names = answers[3 * at : 3 * at + 3]
        if outcome is not None or node is None or names is None:
            continue  # the task has finished, with or without a kept outcome
        if is_kept(client.codec, asked[number], node.data, names) is False:
            unkept.append(number)
    if unkept and (if_any or len(unkept) == len(tasks)):
        raise will_not_be_kept(unkept[0], tasks[unkept[0]], len(unkept) - 1)


def refuse_if_nothing_is_kept(client: Connection, plan_path: str) -> None:
    """Raise ResultNotKept for a plan that goes on, has no kept outcome, and has no task that is
    known to keep its result, or might."""
    ask = client.transport.ask
    status = client.transport.run(read_status(plan_path))
    if status.outcomes or status.state not in ("running", "paused"):
        return
    names = sorted(name for name in ask(ReadChildren(plan_path)) or () if parse_task(name))
    # Mostly the last tasks of a plan are those whose results no task takes, so that one batch is
    # enough.
    for end in range(len(names), 0, -TASKS_PER_BATCH):
        paths = [f"{plan_path}/{name}" for name in names[max(0, end - TASKS_PER_BATCH) : end]]
        reads = [read for path in paths for read in (ReadData(path), ReadChildren(path))]
        answers = client.transport.run(read_all(reads))
        for node, children in zip(answers[::2], answers[1::2], strict=True):
            if node is not None and _keeps(client.codec, node.data, children or ()) is not False:
                return
    if not names or ask(ReadChildren(f"{plan_path}/results")):
        return  # a task that has ended meanwhile may have kept its result
    raise ResultNotKept(
        plan_path,
        f"no result of {plan_path} is kept: the results of its {count(len(names), 'task')} go only "
        "to their dependents. Add tasks with keep=True to read their results. If running tasks add "
        "tasks that keep theirs, wait first (`plan.wait()`)",
    )


def is_kept(codec: Codec, task: TaskHandle, definition: bytes, names: Iterable[str]) -> bool | None:
    """Whether the result of an unfinished task will be kept. None if that cannot be known here.

    `definition` is the data of the task's znode, and `names` are the children.
    """
    known = task._is_kept()
    return _keeps(codec, definition, names) if known is None else known


def _keeps(codec: Codec, definition: bytes, names: Iterable[str]) -> bool | None:
    try:
        keep = task_options(codec.open_definition(definition)).keep
    except PayloadUndecodable:
        return None  # signed with another secret, and so will be the result
    return keep or (keep is None and not any(name.startswith("prov-") for name in names))


def will_not_be_kept(number: str, task: TaskHandle, more: int = 0) -> ResultNotKept:
    others = f" (and {more} more)" if more else ""
    return ResultNotKept(
        task.name or number,
        f"the result of {task!r}{others} goes to its dependents and is not kept: add it with "
        "keep=True",
    )


# ---- Wait for the result of one task, and open outcomes.


logger = get_logger("zkplan.plan")


def wait_for_outcome(
    client: Connection,
    plan_path: str,
    number: str,
    task: TaskHandle,
    timeout: Duration | None,
    value: bool,
) -> bytes:
    """Wait for the sealed outcome of a task. Raises as Task.result.

    With `value`, a task whose result will not be kept raises ResultNotKept before the wait.
    """
    name = task.name
    transport = client.transport
    path, outcome_path = f"{plan_path}/task-{number}", f"{plan_path}/results/{number}"
    patience = Patience(client, plan_path, timeout, f"there is no result of {label_of(path, name)}")
    # The order matters. The transaction that deletes the task writes the outcome, so once the task
    # is found missing, the outcome is found afterwards or never. A plan that is removed is
    # cancelled before its tasks are deleted.
    paths = (path, outcome_path, f"{plan_path}/ready", plan_path, f"{plan_path}/dead")
    reads = ReadMany([*map(ReadData, paths), ReadChildren(path)])
    has_looked = False

    def look() -> tuple[bool, PlanStatus | bytes | None]:
        nonlocal has_looked
        live, outcome, control, home, dead, names = transport.ask(reads)
        if outcome is not None:
            return True, outcome.data
        if home is None:
            raise PlanNotFound(plan_path, f"{plan_path} was removed")
        require_proven(control.data if control is not None else b"")
        state = control_from_bytes(control.data) if control is not None else "defining"
        if live is None:
            if state == "cancelled":
                raise PlanCancelled(plan_path, f"{plan_path} was cancelled")
            raise not_kept(path, name)
        is_first, has_looked = not has_looked, True
        must_be_kept = value and is_first and state != "cancelled"
        if must_be_kept and is_kept(client.codec, task, live.data, names or ()) is False:
            if transport.ask(ReadChildren(outcome_path)) is not None:
                return look()  # the task has just ended
            raise will_not_be_kept(number, task)
        transport.ask(ReadData(path, watch=True))
        if not is_first:
            # Not at the first look: where many short waits follow each other, these watches would
            # stay until their plans are removed.
            transport.ask(ReadData(f"{plan_path}/ready", watch=True))
            patience.watch_the_dead()
        if transport.ask(ReadData(outcome_path, watch=True)) is not None:
            return look()
        goes_on = state in ("running", "paused") and (dead is None or not dead.child_count)
        if is_first and goes_on:
            return False, None
        return False, transport.run(read_status(plan_path))

    with patience.log_ctrl_c():
        outcome: bytes = patience.wait(look)
    return outcome


def label_of(path: str, name: str) -> str:
    """The words for a task in messages."""
    return f"{name} ({path})" if name else path


def not_kept(path: str, name: str) -> ResultNotKept:
    return ResultNotKept(
        name or path,
        f"{label_of(path, name)} has finished (or never existed); its result went to its "
        "dependents and was not kept: add it with keep=True",
    )


def open_outcome(
    values: Values, sealed: bytes, path: str, name: str, read: Read | None = None
) -> Any:
    """Return the value of an outcome, or raise the exception that it holds. `path` is the path of
    the task; `read` returns the blob of the value, if the blob is read elsewhere."""
    kind, body = values.codec.open(VALUE + FAILURE, sealed)
    if kind == VALUE:
        try:
            return values.load(path.rpartition("/")[0], body, read)
        except StoredValueLost as error:
            raise StoredValueLost(
                f"the result of {label_of(path, name)} is lost: {error}. Restore the file"
            ) from None
    raise failure_in(values.codec, body, path, name)


def failure_in(codec: Codec, body: bytes, path: str, name: str) -> Exception:
    """The exception of the function, with a TaskFailed as its cause; the TaskFailed itself if the
    exception cannot be restored."""
    failure, label = Failure.from_bytes(body), label_of(path, name)
    remote = TaskFailed(
        name or path,
        f"{label} is out of attempts: {failure.summary}\n\n{failure.traceback}",
        failure.traceback,
    )
    original = None
    if failure.exception:
        try:
            original = codec.load_exception(failure.exception)
        except Exception:
            logger.debug("the exception of %s cannot be restored here", label, exc_info=True)
    if original is None:
        return remote
    original.__cause__ = remote
    return original


# ---- Whether one task has completed, without waiting.


def has_completed(client: Connection, plan_path: str, number: str) -> bool:
    """See Task.done."""
    reads = [
        ReadData(f"{plan_path}/results/{number}"),
        ReadData(f"{plan_path}/ready"),
        # The `ready` below the task comes and goes with the task, and is small.
        ReadData(f"{plan_path}/task-{number}/ready"),
    ]
    outcome, control, ready = client.transport.ask(ReadMany(reads, strict=True))
    if outcome is not None or ready is None:
        return True
    return control is not None and control_from_bytes(control.data) == "cancelled"


# ---- Read kept outcomes in batches, and their values in the store several at a time.


Each = TypeVar("Each")


def read_outcomes(
    transport: Transport, plan_path: str, numbers: Sequence[str]
) -> Iterator[tuple[str, bytes | None]]:
    """Yield the number and the sealed outcome (or None) of each task.

    The iterator reads in batches as it goes on.
    """
    for batch in outcome_nodes(transport, plan_path, numbers, strict=True):
        for number, node in batch:
            yield number, None if node is None else node.data


def with_outcomes(
    found: list[tuple[HandleT, Completed]],
) -> Iterator[tuple[tuple[HandleT, Completed], bytes | None]]:
    """Yield each task with its sealed outcome, or None. The iterator reads as it goes on."""
    by_plan: dict[tuple[int, str], list[tuple[HandleT, Completed]]] = {}
    places: dict[tuple[int, str], Connection] = {}
    for pair in found:
        client, plan_path, _ = pair[0]._waited_for()
        places[id(client), plan_path] = client
        by_plan.setdefault((id(client), plan_path), []).append(pair)
    for key, pairs in by_plan.items():
        kept = {completed.number: (task, completed) for task, completed in pairs if completed.kept}
        for number, outcome in read_outcomes(places[key].transport, key[1], list(kept)):
            yield kept[number], outcome
        for pair in pairs:
            if not pair[1].kept:
                yield pair, None


def with_reads(
    found: Iterable[tuple[Each, bytes | None]],
    place_of: Callable[[Each], tuple[Connection, str]],
    is_wanted: Callable[[], bool] = lambda: True,
) -> Iterator[tuple[Each, bytes | None, Read | None]]:
    """Yield each sealed outcome with a `read` for `open_outcome`, if the value is in the store. A
    few blobs are read ahead while `is_wanted` returns True.

    `place_of` returns the client and the path of the plan.
    """
    behind = deque[tuple[Each, bytes | None]]()

    def reads() -> Iterator[Read | None]:
        for each, outcome in found:
            behind.append((each, outcome))
            client, plan_path = place_of(each)
            yield None if outcome is None else client.values.reading_sealed(plan_path, outcome)

    for read in side_by_side(reads(), is_wanted):
        yield (*behind.popleft(), read)


# ---- The results of many tasks of one plan, read in batches while the plan runs.


def results_of(
    client: Connection,
    plan_path: str,
    tasks: Sequence[HandleT],
    timeout: Duration | None,
    raises: bool,
) -> list[Any]:
    """See Plan.results."""
    timeout = checked_timeout(timeout)
    for task in tasks:
        if task.plan.path != plan_path:
            raise ForeignTask(
                task.name, f"{task!r} is not of {plan_path}: ask its own plan for its result"
            )
    deadline = None if timeout is None else time.monotonic() + timeout
    values: dict[str, Any] = {}
    numbers = [task._waited_for()[2] for task in tasks]
    refuse_unkept(client, plan_path, dict(zip(numbers, tasks, strict=True)), if_any=raises)
    with Group[HandleT]() as group:
        group.add(tasks)
        while group.open:
            found = group.wait(deadline)
            if not found:
                raise WaitTimeout(
                    f"{len(group.open)} of {len(set(numbers))} results of {plan_path} are missing "
                    f"after {timeout:g} s; {group.why()}"
                )
            outcomes = with_reads(with_outcomes(found), lambda _: (client, plan_path))
            for (task, completed), outcome, read in outcomes:
                path = f"{plan_path}/task-{completed.number}"
                value = _value(client, path, task.name, completed, raises, outcome, read)
                values[completed.number] = value
    return [values[number] for number in numbers]


def kept_results(
    client: Connection, plan_path: str, timeout: Duration | None, raises: bool
) -> list[Any]:
    """Wait until the plan has ended. Return all kept results, by task number."""
    timeout = checked_timeout(timeout)
    refuse_if_nothing_is_kept(client, plan_path)
    try:
        wait_for_plan(client, plan_path, timeout)
    except PlanFailed:
        if raises:
            raise
    names = client.transport.ask(ReadChildren(f"{plan_path}/results")) or ()
    numbers = sorted(name for name in names if parse_task(f"task-{name}") is not None)
    outcomes = read_outcomes(client.transport, plan_path, numbers)
    return [
        _value(client, f"{plan_path}/task-{at}", "", Completed(at, True), raises, outcome, read)
        for at, outcome, read in with_reads(outcomes, lambda _: (client, plan_path))
        if outcome is not None  # else the task was retried meanwhile
    ]


def _value(
    client: Connection,
    path: str,
    name: str,
    completed: Completed,
    raises: bool,
    outcome: bytes | None,
    read: Read | None,
) -> Any:
    """The value. An error is raised if `raises`, and else returned in place of the value."""
    try:
        if completed.error is not None:
            raise completed.error
        if outcome is None:
            raise not_kept(path, name)
        return open_outcome(client.values, outcome, path, name, read)
    except Exception as error:
        if raises:
            raise
        return error
