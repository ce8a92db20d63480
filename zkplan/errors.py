"""All errors that zkplan raises, and Failure, which a task gets in place of a result.

ZkplanError
├── PlanError                 the plan is not in a state that allows the call
│   ├── PlanNotFound
│   ├── HistoryNotKept        by a plan of an older zkplan, or with history=False
│   ├── PlanExists            another plan has the key
│   ├── PlanDrained
│   ├── PlanCancelled
│   ├── PlanFailed            tasks are dead and nothing else can run
│   └── PlanStuck             tasks remain, none can ever run (znodes damaged by hand)
├── ScheduleNotFound
├── TaskError                 a task cannot be added, or has no result
│   ├── InvalidTask
│   ├── ForeignTask
│   ├── ResultNotKept
│   ├── TaskFailed            carries the remote traceback
│   ├── ShellFailed           a command of `zkplan.shell` ended with an exit code other than 0
│   ├── GateTimeout           what `zkplan.when` waits for has not come in time
│   └── TaskCancelled         by `current().check()`, and for the result of a cancelled task
├── PayloadError              a function or value that cannot travel
│   ├── NotSerialisable
│   ├── PayloadTooLarge
│   ├── PayloadUndecodable
│   │   ├── OtherFormat       another version of zkplan has written it
│   │   └── PayloadRefused    no key sealed it for the place where it lies
│   ├── FunctionNotAllowed    it is not on the list of functions that a worker may run
│   └── StoredValueLost       the store has it no more, or it is damaged
├── InvalidSettings           a profile, a variable or an option that says how to connect is wrong
├── UpdateRefused             an update of several tasks, with everything that is against it
├── UpdateTooLarge            one transaction does not carry an update of several tasks
├── BudgetSpent               the plans of a root take all the room that they may
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

    #: If an add of several tasks raised this: how many of them, from the first on, are in the plan.
    added: int = 0

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle calls a class with the message only, but subclasses need more: so text and data
        # travel.
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
    """No plan of that path or name exists; it was removed, or never created under this root."""


class PlanExists(PlanError):
    """A plan has the key already, and `create_plan` was called with if_exists="raise". `plan` is
    its path."""


class PlanDrained(PlanError):
    """The plan has run all its tasks and is done. No task can be added any more."""


class PlanCancelled(PlanError):
    """The plan was cancelled. No task of it can be claimed, and none can be added."""


class PlanFailed(PlanError):
    """Tasks of the plan are out of attempts.

    `failures` maps task names to the text of their last error. Raised by `Plan.wait` when nothing
    of the plan can run any more (policy `hold`), or when it drained with failures (policy
    `cascade`).
    """

    def __init__(self, plan: str, message: str, failures: dict[str, str]) -> None:
        super().__init__(plan, message)
        self.failures = failures


class PlanStuck(PlanError):
    """Tasks remain, but none is runnable, claimed, delayed or dead: the plan can never drain."""


class ScheduleNotFound(ZkplanError):
    """No schedule of that name exists under this root. `schedule` is the name."""

    def __init__(self, schedule: str, message: str) -> None:
        super().__init__(message)
        self.schedule = schedule


class TaskError(ZkplanError):
    """A task cannot be added, or has no result to give. `task` names it."""

    def __init__(self, task: str, message: str) -> None:
        super().__init__(message)
        self.task = task


class InvalidTask(TaskError):
    """The description of a task is wrong (not callable, a generator, options out of range)."""


class ForeignTask(TaskError):
    """An argument is a task of another plan: edges stay within one plan."""


class ResultNotKept(TaskError):
    """The task has finished, and only its dependents got its result. Add it with `keep=True`."""


class TaskFailed(TaskError):
    """The task is out of attempts. `remote_traceback` is the text of the worker's traceback.

    If the original exception can be restored, `Task.result()` raises that one instead. Its
    `__cause__` is then a TaskFailed, whose message holds the text.
    """

    def __init__(self, task: str, message: str, remote_traceback: str = "") -> None:
        super().__init__(task, message)
        self.remote_traceback = remote_traceback


class ShellFailed(TaskError):
    """A command of `zkplan.shell` ended with an exit code other than 0, or by a signal.

    `exit_code` is below 0 for a signal, whose name is in `signal`, and `stderr` is the end of what
    the command wrote there.
    """

    def __init__(
        self, task: str, message: str, exit_code: int, signal: str = "", stderr: str = ""
    ) -> None:
        super().__init__(task, message)
        self.exit_code, self.signal, self.stderr = exit_code, signal, stderr


class GateTimeout(TaskError):
    """What a gate waits for has not come within its `timeout`. `path` is that of the znode."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"when {path}", message)
        self.path = path


class TaskCancelled(TaskError):
    """Raised by `current().check()` inside a task whose result is not wanted any more, and by
    `Task.result()` of a task that was cancelled."""


class PayloadError(ZkplanError):
    """A function or a value cannot travel through ZooKeeper."""


class NotSerialisable(PayloadError):
    """A function or value cannot be turned into bytes. Nothing was written."""


class PayloadTooLarge(PayloadError):
    """A payload exceeds what a request may carry; `size`, `limit` in bytes. Nothing was sent."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(
            f"{what}: {size} bytes, but one ZooKeeper request carries at most {limit} of it: "
            "give authors and workers a store for large values (store=, --store, ZKPLAN_STORE)"
        )
        self.size = size
        self.limit = limit


class UpdateRefused(ZkplanError):
    """An update of several tasks does not fit the state of its plan. Nothing was written.

    `refusals` say why, one for each operation that does not fit.
    """

    def __init__(self, message: str, refusals: Sequence[Any]) -> None:
        super().__init__(message)
        self.refusals = refusals


class UpdateTooLarge(ZkplanError):
    """One transaction does not carry an update of several tasks. Nothing was written.

    It needs `ops` operations in ZooKeeper and `size` bytes, at most; one transaction carries
    `ops_max` and `size_max`.
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
    """Another version of zkplan has written it. Nothing of it was used."""


class PayloadRefused(PayloadUndecodable):
    """Data in the tree that no holder of a key has sealed for the place where they lie.

    Somebody who may write the tree has changed, moved or made them. Nothing of them was used.
    """


class FunctionNotAllowed(PayloadError):
    """A worker may not run the `function` of that name (MODULE:NAME).

    With serializer json it is not on the worker's list, and its module was not imported for it; or
    it is none of its module's own, or private.
    """

    def __init__(self, function: str, message: str) -> None:
        super().__init__(message)
        self.function = function


class StoredValueLost(PayloadError):
    """A value is not in the store any more, or its bytes are damaged. Nothing was decoded."""


class BudgetSpent(ZkplanError):
    """The plans under `root` take all the room of its budget, so no new one is created. Nothing was
    written; plans that are there go on."""

    def __init__(self, root: str, message: str) -> None:
        super().__init__(message)
        self.root = root


class StoreUnavailable(ZkplanError):
    """The store of large values cannot be used now: away, full, read-only, or another store."""


class ZooKeeperError(ZkplanError):
    """ZooKeeper did not do what was asked."""


class ZooKeeperUnavailable(ZooKeeperError):
    """No server answered in time. A write that was under way may have been applied or not."""


class ClientClosed(ZooKeeperError):
    """The connection was closed, or belongs to the parent of a forked process."""


class ServerRolledBack(ZooKeeperError):
    """ZooKeeper was restored from an older state than this process has seen.

    Every call of this client raises it. Connect again, and look for your plans by their names.
    """


#: The errors of any request while ZooKeeper cannot be used at all.
UNREACHABLE = (ZooKeeperUnavailable, ClientClosed, ServerRolledBack)


class TransactionRejected(ZooKeeperError):
    """ZooKeeper refused a transaction for a reason unknown to the protocol. Nothing was written."""


class AccessDenied(TransactionRejected):
    """An access list does not allow a read or a write. Nothing was written.

    `path` is the znode whose list lacks the right, and `right` the right: read, write, create,
    delete or admin (to change the list itself). To create or delete a znode takes a right on its
    parent.
    """

    def __init__(self, path: str, right: str, what: str) -> None:
        super().__init__(
            f"{what}: the right `{right}` is missing on {path}: connect with the login with which "
            "the tree was made (of a profile, or `auth_data`), or have the right added"
        )
        self.path, self.right = path, right


class ServerFull(TransactionRejected):
    """A quota, or a limit of the embedded server, allows no more znodes or bytes.

    Nothing was written. Workers keep their results and commit them when there is room again; no
    attempt is used up.
    """


class InvalidPlanFile(ZkplanError):
    """A plan file cannot be read, or describes no plan. Nothing was written.

    The text names the file, the task and the key.
    """


class WorkerNotFound(ZkplanError):
    """No living worker, or several, have the ID or the host. `worker` is what was asked for."""

    def __init__(self, worker: str, message: str) -> None:
        super().__init__(message)
        self.worker = worker


class WaitTimeout(ZkplanError, TimeoutError):
    """The time of a wait is over. The plan or task that was waited for goes on."""


class InvariantViolated(ZkplanError):
    """The tree is in a state that the protocol never leaves: it is damaged, or zkplan has a bug.
    Please report it."""


# ---- The failure of a task as a value: what a task with `run_if` gets in place of a result.


@dataclass(frozen=True)
class Failure:
    """Why a task has failed for good.

    `type` is the name of the exception, such as `ValueError`, or `TimeoutError`, `WorkerLost`,
    `TaskCancelled`, `UpstreamFailed`. `message` is its text, `traceback` that of the worker, empty
    where there is none. `attempt` is the fencing number of the attempt, on the worker with the ID
    `worker`.
    """

    type: str
    message: str
    traceback: str = ""
    attempt: int = 0
    worker: str = ""

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type
