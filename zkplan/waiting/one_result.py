"""Wait for the result of one task, and open outcomes."""

from __future__ import annotations

from typing import Any

from ..basics.durations import Duration
from ..connection import Connection
from ..errors import PlanCancelled, PlanNotFound, ResultNotKept, StoredValueLost, TaskFailed
from ..log import get_logger
from ..protocol.control import status as read_status
from ..protocol.records import Failure, control_from_bytes
from ..protocol.requests import ReadChildren, ReadData, ReadMany
from ..protocol.unproven import require_proven
from ..serialization.codec import FAILURE, VALUE, Codec
from ..store.ahead import Read
from ..store.values import Values
from .kept import Keeps, is_kept, will_not_be_kept
from .patience import Patience

logger = get_logger("zkplan.plan")


def wait_for_outcome(
    client: Connection,
    plan_path: str,
    number: str,
    task: Keeps,
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
    # In this order: the transaction that deletes the task writes the outcome. So if the task is
    # gone, its outcome is found after that, or never. A plan that is removed is cancelled before
    # its tasks are deleted.
    paths = (path, outcome_path, f"{plan_path}/ready", plan_path)

    def look() -> tuple[bool, Any]:
        live, outcome, control, home = transport.ask(ReadMany([ReadData(each) for each in paths]))
        if outcome is not None:
            return True, outcome.data
        if home is None:
            raise PlanNotFound(plan_path, f"{plan_path} was removed")
        require_proven(control.data if control is not None else b"")
        is_cancelled = control is not None and control_from_bytes(control.data) == "cancelled"
        if live is None:
            if is_cancelled:
                raise PlanCancelled(plan_path, f"{plan_path} was cancelled")
            raise not_kept(path, name)
        if value and patience.last is None and not is_cancelled:  # the first look
            names = transport.ask(ReadChildren(path)) or ()
            if is_kept(client.codec, task, live.data, names) is False:
                if transport.ask(ReadChildren(outcome_path)) is not None:
                    return look()  # it has just ended
                raise will_not_be_kept(number, task)
        transport.ask(ReadData(path, watch=True))
        if transport.ask(ReadData(outcome_path, watch=True)) is not None:
            return look()
        return False, transport.run(read_status(plan_path))

    with patience.told_at_ctrl_c():
        outcome: bytes = patience.wait(look)
    return outcome


def label_of(path: str, name: str) -> str:
    """How messages call a task."""
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
    """Return the value of an outcome, or raise the exception that it holds. `path` is that of the
    task; `read` gives the blob of its value, if that is read elsewhere."""
    kind, body = values.codec.open(VALUE + FAILURE, sealed)
    if kind == VALUE:
        try:
            return values.load(path.rpartition("/")[0], body, read)
        except StoredValueLost as error:
            told = f"the result of {label_of(path, name)} is gone: {error}. Restore the file"
            raise StoredValueLost(told) from None
    raise failure_in(values.codec, body, path, name)


def failure_in(codec: Codec, body: bytes, path: str, name: str) -> Exception:
    """The exception of the function, caused by a TaskFailed; that one if it cannot be restored."""
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
