"""zkplan runs a graph of Python functions on many machines, with ZooKeeper as the only moving part.

Author:     connect, local, Client, Plan, Task, TaskSpec, PlanStatus
Schedules:  Schedule, ScheduleInfo: plans by the clock, made by Client.schedule
Futures:    task, kind (decorators), as_completed, wait, Executor, TaskInfo, PlanProgress
Causes:     Why, Cause: the answers of Plan.why and Task.why
Gates:      when, When: tasks that wait for a znode
Functional: create_plan, add_task, mark_ready, plan_completed
Commands:   shell, ShellCommand, ShellResult
Worker:     Worker, Backoff, Statistics
In a task:  current, Context, Failure
Errors:     errors.ZkplanError and its subclasses
"""

import importlib.util
from typing import TYPE_CHECKING, Any

from .basics import __version__ as __version__
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
    OtherFormat,
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

if TYPE_CHECKING:
    from .author.functions import kind, task
    from .author.futures import as_completed, wait
    from .author.task_specs import TaskSpec
    from .backoff import Backoff
    from .client import Client, add_task, connect, create_plan, mark_ready, plan_completed
    from .errors import Failure
    from .gates import When, when
    from .integrations.executor import Executor
    from .local_run import local
    from .plan import Plan
    from .protocol.core.plan_life import PlanStatus
    from .protocol.core.workers import WorkerRecord
    from .protocol.features.limits import LimitStatus, Permit
    from .runtime.context import Context, current
    from .runtime.shell import ShellCommand, ShellResult, shell
    from .runtime.statistics import Statistics
    from .schedules import Schedule, ScheduleInfo
    from .tasks import Task
    from .views.history import Event
    from .views.progress import PlanProgress
    from .views.queues import QueueStatus
    from .views.task_info import TaskInfo
    from .views.task_logs import TaskLog
    from .views.why_facts import Cause, Why
    from .worker import Worker

#: The public names that are not imported above, by module.
_NAMES = {
    "author.functions": "task kind",
    "author.futures": "as_completed wait",
    "author.task_specs": "TaskSpec",
    "backoff": "Backoff",
    "client": "Client connect create_plan add_task mark_ready plan_completed",
    "errors": "Failure",
    "gates": "When when",
    "integrations.executor": "Executor",
    "local_run": "local",
    "plan": "Plan",
    "protocol.core.plan_life": "PlanStatus",
    "protocol.core.workers": "WorkerRecord",
    "protocol.features.limits": "LimitStatus Permit",
    "runtime.context": "Context current",
    "runtime.shell": "ShellCommand ShellResult shell",
    "runtime.statistics": "Statistics",
    "schedules": "Schedule ScheduleInfo",
    "tasks": "Task",
    "views.history": "Event",
    "views.queues": "QueueStatus",
    "views.task_info": "TaskInfo",
    "views.progress": "PlanProgress",
    "views.task_logs": "TaskLog",
    "views.why_facts": "Cause Why",
    "worker": "Worker",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


if not TYPE_CHECKING:  # else a type checker would accept any name in zkplan

    def __getattr__(name: str) -> Any:
        """Import a public name at its first use, so that a program loads only what it uses.

        Modules directly in the package are found too, as if all of them were imported.
        """
        if name in _MODULES:
            found = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
            globals()[name] = found
            return found
        below = f"{__name__}.{name}"
        if not name.startswith("_") and importlib.util.find_spec(below) is not None:
            return importlib.import_module(below)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names only; modules are left out."""
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
    "OtherFormat",
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
