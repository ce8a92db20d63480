"""Every error zkplan raises, in one tree.

ZkplanError
├── PlanError                 the plan is not in a state that allows the call
│   ├── PlanNotFound
│   ├── PlanDrained
│   ├── PlanCancelled
│   ├── PlanFailed            tasks are dead and nothing else can run
│   └── PlanStuck             tasks remain, none can ever run (a cycle made with raw znodes)
├── TaskError                 a task cannot be added, or has no result
│   ├── InvalidTask
│   ├── ForeignTask
│   ├── ResultNotKept
│   ├── TaskFailed            carries the remote traceback
│   └── TaskCancelled         raised inside a task that asks `current().check()`
├── PayloadError              a function or value that cannot travel
│   ├── NotSerialisable
│   ├── PayloadTooLarge
│   └── PayloadUndecodable
├── ZooKeeperError               ZooKeeper did not do what was asked
│   ├── ZooKeeperUnavailable
│   ├── ClientClosed
│   ├── ServerRolledBack           ZooKeeper was restored from an older state
│   └── TransactionRejected
│       └── ServerFull        its quota or limit is reached
├── WaitTimeout               also a TimeoutError
└── InvariantViolated         a bug in zkplan or a damaged tree; nothing more was written
"""

from __future__ import annotations

from typing import Any


class ZkplanError(Exception):
    """The base of all errors of zkplan."""

    #: Where adding tasks raised it: so many of them, the first ones, are in the plan all the same.
    added: int = 0

    def __reduce__(self) -> tuple[Any, ...]:
        # As text and data: a subclass asks for more than the message, which pickle would not give.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[ZkplanError], args: tuple[Any, ...], data: dict[str, Any]) -> ZkplanError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(data)
    return error


class PlanError(ZkplanError):
    """The plan is not in a state that allows the call. `plan` is its path."""

    def __init__(self, plan: str, message: str) -> None:
        super().__init__(message)
        self.plan = plan


class PlanNotFound(PlanError):
    """No plan of that path or name exists; it was removed, or never created under this root."""


class PlanDrained(PlanError):
    """The plan has run all its tasks and is done: no task can be added any more."""


class PlanCancelled(PlanError):
    """The plan was cancelled: nothing of it is claimed, nothing can be added."""


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
    """Tasks remain, none is runnable, claimed, delayed or dead: the plan can never drain."""


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
    """The task has finished; its result went to its dependents only. Add it with `keep=True`."""


class TaskFailed(TaskError):
    """The task is out of attempts. `remote_traceback` is the text of the worker's traceback.

    `Task.result()` raises the original exception instead where it could be restored; the text is
    then the message of its `__cause__`, which is a TaskFailed.
    """

    def __init__(self, task: str, message: str, remote_traceback: str = "") -> None:
        super().__init__(task, message)
        self.remote_traceback = remote_traceback


class TaskCancelled(TaskError):
    """Raised by `current().check()` inside a task whose result is not wanted any more."""


class PayloadError(ZkplanError):
    """A function or a value cannot travel through ZooKeeper."""


class NotSerialisable(PayloadError):
    """A function or value cannot be turned into bytes. Nothing was written."""


class PayloadTooLarge(PayloadError):
    """A payload exceeds what a request may carry; `size`, `limit` in bytes. Nothing was sent."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(
            f"{what}: {size} bytes, but one ZooKeeper request carries at most {limit} of it; store "
            "the data elsewhere (a file, an object store) and pass its address"
        )
        self.size = size
        self.limit = limit


class PayloadUndecodable(PayloadError):
    """Bytes cannot be turned back here: a missing module, another Python, a wrong signature."""


class ZooKeeperError(ZkplanError):
    """ZooKeeper did not do what was asked."""


class ZooKeeperUnavailable(ZooKeeperError):
    """No server answered in time. A write that was under way may or may not be applied."""


class ClientClosed(ZooKeeperError):
    """The connection was closed, or belongs to the parent of a forked process."""


class ServerRolledBack(ZooKeeperError):
    """ZooKeeper was restored from an older state than this process has seen.

    Every call of this client raises it: connect anew, and look for your plans by their names.
    """


#: Of the errors of ZooKeeper those that are no matter of what was asked.
UNREACHABLE = (ZooKeeperUnavailable, ClientClosed, ServerRolledBack)


class TransactionRejected(ZooKeeperError):
    """ZooKeeper refused a transaction for a reason unknown to the protocol. Nothing was written."""


class ServerFull(TransactionRejected):
    """ZooKeeper holds as many znodes or bytes as it may: by a quota, or by the limits of the
    embedded server. Nothing was written. Workers keep their results and commit them once there is
    room: no attempt is used up.
    """


class WaitTimeout(ZkplanError, TimeoutError):
    """The time given to a wait is over; what was waited for goes on."""


class InvariantViolated(ZkplanError):
    """The tree is not as the protocol leaves it: damaged, or a bug in zkplan. Please report it."""
