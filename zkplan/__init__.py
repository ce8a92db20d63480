"""zkplan runs a graph of Python functions on many machines, with ZooKeeper as the only moving part.

Author:     connect, local, Client, Plan, Task, TaskSpec, PlanStatus
Schedules:  Schedule, ScheduleInfo: plans by the clock, of Client.schedule
Futures:    task, kind (decorators), as_completed, wait, Executor, TaskInfo, PlanProgress
Causes:     Why, Cause: what Plan.why and Task.why return
Gates:      when, When: tasks that wait for a znode
Functional: create_plan, add_task, mark_ready, plan_completed
Commands:   shell, ShellCommand, ShellResult
Worker:     Worker, Backoff, Statistics
In a task:  current, Context, Failure
Errors:     errors.ZkplanError and its subclasses
"""

from typing import TYPE_CHECKING, Any

from .backoff import Backoff
from .client import Client, connect
from .errors import (
    AccessDenied,
    BudgetSpent,
    ClientClosed,
    ForeignTask,
    FunctionNotAllowed,
    GateTimeout,
    HistoryNotKept,
    InvalidPlanFile,
    InvalidSettings,
    InvalidTask,
    InvariantViolated,
    NotSerialisable,
    PayloadError,
    PayloadRefused,
    PayloadTooLarge,
    PayloadUndecodable,
    PlanCancelled,
    PlanDrained,
    PlanError,
    PlanExists,
    PlanFailed,
    PlanNotFound,
    PlanStuck,
    ResultNotKept,
    ScheduleNotFound,
    ServerFull,
    ServerRolledBack,
    ShellFailed,
    StoredValueLost,
    StoreUnavailable,
    TaskCancelled,
    TaskError,
    TaskFailed,
    TransactionRejected,
    UpdateRefused,
    UpdateTooLarge,
    WaitTimeout,
    WorkerNotFound,
    ZkplanError,
    ZooKeeperError,
    ZooKeeperUnavailable,
)
from .failure import Failure
from .functional import add_task, create_plan, mark_ready, plan_completed
from .functions.decorator import task
from .functions.kinds import kind
from .gates import When, when
from .history.events import Event
from .history.logs import TaskLog
from .inspection.plan_progress import PlanProgress
from .inspection.queues import QueueStatus
from .inspection.task_info import TaskInfo
from .inspection.view import Cause, Why
from .local import local
from .plan import Plan
from .protocol.control import PlanStatus
from .protocol.limits import LimitStatus, Permit
from .protocol.worker_record import WorkerRecord
from .runtime.context import Context, current
from .runtime.statistics import Statistics
from .schedules import Schedule, ScheduleInfo
from .shell_commands.command import ShellCommand, ShellResult, shell
from .tasks import Task, TaskSpec
from .version import __version__ as __version__
from .waiting.futures import as_completed, wait
from .worker import Worker

if TYPE_CHECKING:
    from .integrations.executor import Executor


def __getattr__(name: str) -> Any:
    # Imported only when it is used, as all of zkplan.integrations.
    if name == "Executor":
        from .integrations.executor import Executor

        return Executor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names only. To reach a module below, import it."""
    return sorted([*__all__, "__version__"])


__all__ = [
    # Author
    "connect",
    "local",
    "Client",
    "Plan",
    "Event",
    "Task",
    "TaskSpec",
    "Schedule",
    "ScheduleInfo",
    # Futures
    "task",
    "kind",
    "as_completed",
    "wait",
    "Executor",
    "TaskInfo",
    "TaskLog",
    "PlanProgress",
    "Why",
    "Cause",
    "PlanStatus",
    "WorkerRecord",
    "QueueStatus",
    "LimitStatus",
    "Permit",
    # Gates
    "when",
    "When",
    # Commands
    "shell",
    "ShellCommand",
    "ShellResult",
    # Functional
    "create_plan",
    "add_task",
    "mark_ready",
    "plan_completed",
    # Worker
    "Worker",
    "Backoff",
    "Statistics",
    # In a task
    "current",
    "Context",
    "Failure",
    # Errors
    "ZkplanError",
    "PlanError",
    "PlanNotFound",
    "PlanDrained",
    "PlanCancelled",
    "PlanExists",
    "PlanFailed",
    "PlanStuck",
    "ScheduleNotFound",
    "TaskError",
    "InvalidTask",
    "ForeignTask",
    "ResultNotKept",
    "TaskFailed",
    "ShellFailed",
    "GateTimeout",
    "HistoryNotKept",
    "TaskCancelled",
    "PayloadError",
    "NotSerialisable",
    "PayloadTooLarge",
    "PayloadRefused",
    "PayloadUndecodable",
    "FunctionNotAllowed",
    "StoredValueLost",
    "InvalidSettings",
    "StoreUnavailable",
    "ZooKeeperError",
    "ZooKeeperUnavailable",
    "ClientClosed",
    "ServerRolledBack",
    "ServerFull",
    "TransactionRejected",
    "InvalidPlanFile",
    "AccessDenied",
    "BudgetSpent",
    "UpdateRefused",
    "UpdateTooLarge",
    "WaitTimeout",
    "WorkerNotFound",
    "InvariantViolated",
]
