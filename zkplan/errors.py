"""All errors that zkplan raises, and Failure, the value of a failed task in place of a result.

ZkplanError
├── PlanError                 the plan is not in a state that allows the call
│   ├── PlanNotFound
│   ├── HistoryNotKept        the plan has history=False, or an older zkplan made it
│   ├── PlanExists            another plan has the key
│   ├── PlanDrained
│   ├── PlanCancelled
│   ├── PlanFailed            tasks are dead and nothing else can run
│   └── PlanStuck             tasks remain, but none can ever run (znodes damaged by hand)
├── ScheduleNotFound
├── TaskError                 a task cannot be added, or has no result
│   ├── InvalidTask
│   ├── ForeignTask
│   ├── ResultNotKept
│   ├── TaskFailed            carries the remote traceback
│   ├── ShellFailed           a command of `zkplan.shell` ended with an exit code other than 0
│   ├── GateTimeout           the condition of a `zkplan.when` was not met in time
│   └── TaskCancelled         from `current().check()`, and for the result of a cancelled task
├── PayloadError              a function or value cannot travel
│   ├── NotSerialisable
│   ├── PayloadTooLarge
│   ├── PayloadUndecodable
│   │   ├── OtherFormat       another version of zkplan has written the data
│   │   └── PayloadRefused    no key has sealed the data for the place where they lie
│   ├── FunctionNotAllowed    the function is not on a worker's list of allowed functions
│   └── StoredValueLost       the value is missing in the store, or damaged
├── InvalidSettings           a profile, a variable or an option that says how to connect is wrong
├── UpdateRefused             an update of several tasks does not fit; it lists all reasons
├── UpdateTooLarge            an update of several tasks does not fit into one transaction
├── BudgetSpent               the plans of a root have used up its budget of room
├── StoreUnavailable          the store of large values cannot be used now, or is another one
├── ZooKeeperError               ZooKeeper did not do what was asked
│   ├── ZooKeeperUnavailable
│   ├── ClientClosed
│   ├── ServerRolledBack           ZooKeeper was restored from an older state
│   └── TransactionRejected
│       ├── AccessDenied      an access list lacks a right
│       └── ServerFull        its quota or limit is reached
├── InvalidPlanFile           nothing was written
├── WorkerNotFound            no living worker, or several, have the ID
├── WaitTimeout               also a TimeoutError
└── InvariantViolated         a bug in zkplan or a damaged tree; nothing more was written
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class ZkplanError(Exception):
    """The base of all errors of zkplan."""

    #: If an add of several tasks raised this error: how many tasks, from the first on, are in the
    #: plan.
    added: int = 0

    def __reduce__(self) -> tuple[Any, ...]:
        # By default pickle calls the class with the message alone, but subclasses take more.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[ZkplanError], args: tuple[Any, ...], data: dict[str, Any]) -> ZkplanError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(data)
    return error


class InvalidSettings(ZkplanError):
    """A profile, a variable or an option that says how to connect is wrong.

    The message names the file and the line, or the variable or the option, and what to do.
    """


class PlanError(ZkplanError):
    """The plan is not in a state that allows the call. `plan` is its path."""

    def __init__(self, plan: str, message: str) -> None:
        super().__init__(message)
        self.plan = plan


class HistoryNotKept(PlanError):
    """The plan keeps no history: it was made with `history=False`, or by an older zkplan."""


class PlanNotFound(PlanError):
    """No plan has this path, name or key: it was removed, or never created under this root."""


class PlanExists(PlanError):
    """A plan has the key already: raised by `create_plan` with if_exists="raise", by an import, and
    by an add without keys to a plan that was found. `plan` is the path of the plan with the key."""


class PlanDrained(PlanError):
    """The plan has run all its tasks and is done, so no task can be added."""


class PlanCancelled(PlanError):
    """The plan was cancelled, so its tasks cannot be claimed and none can be added."""


class PlanFailed(PlanError):
    """Tasks of the plan are out of attempts.

    `failures` maps task names to the text of their last error. `Plan.wait` raises this when no
    other task can run (policy `hold`), or when the plan has drained with failures (policy
    `cascade`).
    """

    def __init__(self, plan: str, message: str, failures: dict[str, str]) -> None:
        super().__init__(plan, message)
        self.failures = failures


class PlanStuck(PlanError):
    """Tasks remain, but none is runnable, claimed, delayed or dead: the plan can never drain."""


class ScheduleNotFound(ZkplanError):
    """No schedule with this name exists under this root. `schedule` is the name."""

    def __init__(self, schedule: str, message: str) -> None:
        super().__init__(message)
        self.schedule = schedule


class TaskError(ZkplanError):
    """A task cannot be added, or has no result to give. `task` names it."""

    def __init__(self, task: str, message: str) -> None:
        super().__init__(message)
        self.task = task


class InvalidTask(TaskError):
    """The description of a task is wrong (no callable, a generator, an option out of range)."""


class ForeignTask(TaskError):
    """An argument is a task of another plan: edges stay within one plan."""


class ResultNotKept(TaskError):
    """The result of the task goes only to its dependents. Add the task with `keep=True`."""


class TaskFailed(TaskError):
    """The task is out of attempts. `remote_traceback` is the text of the worker's traceback.

    If the original exception can be restored, `Task.result()` raises that exception instead, with a
    TaskFailed as its `__cause__`, whose message holds the traceback.
    """

    def __init__(self, task: str, message: str, remote_traceback: str = "") -> None:
        super().__init__(task, message)
        self.remote_traceback = remote_traceback


class ShellFailed(TaskError):
    """A command of `zkplan.shell` ended with an exit code other than 0, or by a signal.

    `exit_code` is negative for a signal, whose name is in `signal`. `stderr` is the end of the
    command's standard error.
    """

    def __init__(
        self, task: str, message: str, exit_code: int, signal: str = "", stderr: str = ""
    ) -> None:
        super().__init__(task, message)
        self.exit_code, self.signal, self.stderr = exit_code, signal, stderr


class GateTimeout(TaskError):
    """The condition of a gate was not met within its `timeout`. `path` is the path of the znode."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"when {path}", message)
        self.path = path


class TaskCancelled(TaskError):
    """Raised by `current().check()` in a task whose result is not wanted any more, and by
    `Task.result()` for a cancelled task."""


class PayloadError(ZkplanError):
    """A function or a value cannot travel through ZooKeeper."""


class NotSerialisable(PayloadError):
    """A function or value cannot be turned into bytes. Nothing was written."""


class PayloadTooLarge(PayloadError):
    """A payload is too large for one request. Nothing was sent. `size` and `limit` are in bytes."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(
            f"{what}: {size} bytes, but one ZooKeeper request carries at most {limit} of it: "
            "give authors and workers a store for large values (store=, --store, ZKPLAN_STORE)"
        )
        self.size = size
        self.limit = limit


class UpdateRefused(ZkplanError):
    """An update of several tasks does not fit the state of its plan. Nothing was written.

    `refusals` has the reason for each operation that does not fit.
    """

    def __init__(self, message: str, refusals: Sequence[Any]) -> None:
        super().__init__(message)
        self.refusals = refusals


class UpdateTooLarge(ZkplanError):
    """An update of several tasks does not fit into one transaction. Nothing was written.

    It needs up to `ops` operations in ZooKeeper and `size` bytes; one transaction carries `ops_max`
    and `size_max`.
    """

    def __init__(self, ops: int, size: int, ops_max: int, size_max: int) -> None:
        super().__init__(
            f"the update needs up to {ops} operations and {size} bytes in one transaction of "
            f"ZooKeeper, which carries {ops_max} and {size_max}: do it in several updates"
        )
        self.ops, self.size = ops, size
        self.ops_max, self.size_max = ops_max, size_max


class PayloadUndecodable(PayloadError):
    """Bytes cannot be decoded here, for example because a module is missing or a signature is
    wrong."""


class OtherFormat(PayloadUndecodable):
    """Another version of zkplan has written the data. None of the data was used."""


class PayloadRefused(PayloadUndecodable):
    """Data in the tree that no holder of a key has sealed for the place where they lie.

    Somebody with write access to the tree has changed, moved or made the data. None of the data was
    used.
    """


class FunctionNotAllowed(PayloadError):
    """A worker may not run `function` (MODULE:NAME).

    With serializer json, the function is not on the worker's list, is private, or does not belong
    to that module. The module of a function that is not on the list was not imported for it.
    """

    def __init__(self, function: str, message: str) -> None:
        super().__init__(message)
        self.function = function


class StoredValueLost(PayloadError):
    """A value is missing in the store, or its bytes are damaged. Nothing was decoded."""


class BudgetSpent(ZkplanError):
    """The plans under `root` have used up its budget of room, so no new plan is created. Nothing
    was written; existing plans go on."""

    def __init__(self, root: str, message: str) -> None:
        super().__init__(message)
        self.root = root


class StoreUnavailable(ZkplanError):
    """The store of large values cannot be used now: missing, full, read-only, or another store."""


class ZooKeeperError(ZkplanError):
    """ZooKeeper did not do what was asked."""


class ZooKeeperUnavailable(ZooKeeperError):
    """No server answered in time. A write that was under way may or may not have been applied."""


class ClientClosed(ZooKeeperError):
    """The connection was closed, or belongs to the parent of a forked process."""


class ServerRolledBack(ZooKeeperError):
    """ZooKeeper was restored from an older state than this process has seen.

    Every call of this client raises it. Connect again, and look for your plans by their names.
    """


#: The errors that any request raises while ZooKeeper cannot be used at all.
UNREACHABLE = (ZooKeeperUnavailable, ClientClosed, ServerRolledBack)


class TransactionRejected(ZooKeeperError):
    """ZooKeeper refused a transaction for a reason unknown to the protocol. Nothing was written."""


class AccessDenied(TransactionRejected):
    """An access list does not allow a read or a write. Nothing was written.

    `path` is the znode whose list lacks `right`: read, write, create, delete or admin (to change
    the list itself). Creating or deleting a znode takes a right on its parent.
    """

    def __init__(self, path: str, right: str, what: str) -> None:
        super().__init__(
            f"{what}: the right `{right}` is missing on {path}: connect with the login that made "
            "the tree (in a profile, or by `auth_data`), or have the right added"
        )
        self.path, self.right = path, right


class ServerFull(TransactionRejected):
    """A quota, or a limit of the embedded server, allows no more znodes or bytes.

    Nothing was written. Workers keep their results and commit them when there is room again; no
    attempt is used up.
    """


class InvalidPlanFile(ZkplanError):
    """A plan file cannot be read, or describes no plan. Nothing was written.

    The message names the file, the task and the key.
    """


class WorkerNotFound(ZkplanError):
    """No living worker, or more than one, has the given ID or host. `worker` is that ID or host."""

    def __init__(self, worker: str, message: str) -> None:
        super().__init__(message)
        self.worker = worker


class WaitTimeout(ZkplanError, TimeoutError):
    """The time of a wait is over. The plan or task goes on."""


class InvariantViolated(ZkplanError):
    """The tree is in a state that the protocol never leaves: it is damaged, or zkplan has a bug.
    Please report it."""


# ---- The failure of a task as a value: a task with `run_if` gets it in place of a result.


@dataclass(frozen=True)
class Failure:
    """Why a task has failed for good.

    `type` is the name of the exception, such as `ValueError`, or `TimeoutError`, `WorkerLost`,
    `TaskCancelled`, `UpstreamFailed`. `message` is its text, and `traceback` the worker's
    traceback, which may be empty. `attempt` is the fencing number of the attempt, which ran on the
    worker with the ID `worker`.
    """

    type: str
    message: str
    traceback: str = ""
    attempt: int = 0
    worker: str = ""

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type
