"""zkplan runs a graph of Python functions on many machines, with ZooKeeper as the only moving part.

Author:     connect, local, Client, Plan, Task, TaskSpec, PlanStatus
Functional: create_plan, add_task, mark_ready, plan_completed
Worker:     Worker, Backoff, Statistics
In a task:  current, Context
Errors:     errors.ZkplanError and its subclasses
"""

from .backoff import Backoff
from .client import Client, connect
from .errors import (
    ClientClosed,
    ForeignTask,
    InvalidTask,
    InvariantViolated,
    NotSerialisable,
    PayloadError,
    PayloadTooLarge,
    PayloadUndecodable,
    PlanCancelled,
    PlanDrained,
    PlanError,
    PlanFailed,
    PlanNotFound,
    PlanStuck,
    ResultNotKept,
    ServerFull,
    ServerRolledBack,
    TaskCancelled,
    TaskError,
    TaskFailed,
    TransactionRejected,
    WaitTimeout,
    ZkplanError,
    ZooKeeperError,
    ZooKeeperUnavailable,
)
from .functional import add_task, create_plan, mark_ready, plan_completed
from .local import local
from .plan import Plan
from .protocol.control import PlanStatus
from .protocol.records import WorkerRecord
from .runtime.context import Context, current
from .runtime.statistics import Statistics
from .task import Task, TaskSpec
from .worker import Worker

__version__ = "0.1.0"


def __dir__() -> list[str]:
    """List the public names only. To reach a module below, import it."""
    return sorted([*__all__, "__version__"])


__all__ = [
    # Author
    "connect",
    "local",
    "Client",
    "Plan",
    "Task",
    "TaskSpec",
    "PlanStatus",
    "WorkerRecord",
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
    # Errors
    "ZkplanError",
    "PlanError",
    "PlanNotFound",
    "PlanDrained",
    "PlanCancelled",
    "PlanFailed",
    "PlanStuck",
    "TaskError",
    "InvalidTask",
    "ForeignTask",
    "ResultNotKept",
    "TaskFailed",
    "TaskCancelled",
    "PayloadError",
    "NotSerialisable",
    "PayloadTooLarge",
    "PayloadUndecodable",
    "ZooKeeperError",
    "ZooKeeperUnavailable",
    "ClientClosed",
    "ServerRolledBack",
    "ServerFull",
    "TransactionRejected",
    "WaitTimeout",
    "InvariantViolated",
]
