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
    ForeignTask,
    HistoryLost,
    InvalidTask,
    InvariantViolated,
    KeeperClosed,
    KeeperError,
    KeeperUnavailable,
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
    TaskCancelled,
    TaskError,
    TaskFailed,
    TransactionRejected,
    WaitTimeout,
    ZkplanError,
)
from .execution import Context, current
from .functional import add_task, create_plan, mark_ready, plan_completed
from .local import local
from .plan import Plan
from .protocol.control import PlanStatus
from .records import WorkerRecord
from .task import Task, TaskSpec
from .worker import Worker
from .working.statistics import Statistics

__version__ = "0.1.0"

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
    "KeeperError",
    "KeeperUnavailable",
    "KeeperClosed",
    "HistoryLost",
    "ServerFull",
    "TransactionRejected",
    "WaitTimeout",
    "InvariantViolated",
]
