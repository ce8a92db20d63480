"""Attempts made by hand: a claimed task without ZooKeeper, and what its end says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

from zkplan.plan import Plan
from zkplan.protocol.core.edges import argument_of, with_sources
from zkplan.protocol.core.load import Loaded
from zkplan.protocol.layout import Paths
from zkplan.protocol.records import Failure, TaskRecord
from zkplan.protocol.task_options import TaskOptions
from zkplan.protocol.transactions import Claim
from zkplan.runtime.attempts import VanishedWorkers
from zkplan.runtime.isolation_processes import Processes
from zkplan.runtime.job import Ended, Job
from zkplan.runtime.runner import Runner
from zkplan.transport import Transport
from zkplan.transport.server_clock import CLOCK, ServerClock
from zkplan.values import codec as codecs
from zkplan.values import function_codec as functions
from zkplan.values.codec import TASK, VALUE, Codec
from zkplan.values.plan_values import Values

PATHS = Paths("/zkplan")
#: SOURCE is the task whose outcome each argument is.
PLAN, TASK_NUMBER, SOURCE = "0000000003", "0000000012", "0000000011"
CODEC = Codec()
VALUES = Values(cast("Transport", None), CODEC)
#: It runs all tasks in threads, but for those that want a process.
THREADS = Processes(CODEC, 1, False)
#: What a function did that must not have run.
ran: list[Any] = []


def note(*args: Any) -> None:
    ran.append(args)


def one_runner() -> Iterator[Runner]:
    """For a fixture. No function that it runs may ask for the transport or the plan."""
    ran.clear()
    transport, plan = cast("Transport", None), cast("Plan", None)
    made = Runner(
        transport=transport,
        values=VALUES,
        plan_within=lambda job: plan,
        vanished=VanishedWorkers(),
        queues=["default"],
        is_busy=lambda: False,
        isolation=THREADS,
        clock=CLOCK,
        server_clock=ServerClock(),
    )
    yield made
    made.close()


def claim(n: int = 0, a: int = 0) -> Claim:
    return Claim(
        plan=PLAN,
        task=TASK_NUMBER,
        rank="5000",
        n=n,
        a=a,
        path=PATHS.claim("worker-1", PLAN, TASK_NUMBER, n, "7f"),
        plan_path=PATHS.plan(PLAN),
        task_path=PATHS.task(PLAN, TASK_NUMBER),
    )


class Edge:
    """Stands for a task among the arguments."""

    def __init__(self, position: int) -> None:
        self.position = position


def position_of(value: Any) -> int | None:
    return value.position if type(value) is Edge else None


def job_of(
    function: Callable[..., Any],
    args: tuple[Any, ...] = (),
    arguments: tuple[bytes, ...] = (),
    *,
    codec: Codec = CODEC,
    options: TaskOptions | None = None,
    a: int = 0,
    **kwargs: Any,
) -> Job:
    """A claimed task whose `arguments` came down its edges."""
    record = TaskRecord(
        len(arguments),
        (options or TaskOptions()).to_json(),
        functions.dump_function(function),
        codecs.dump_call(args, kwargs, position_of),
    )
    definition = with_sources(codec.seal(TASK, record.to_bytes()), [SOURCE] * len(arguments))
    return Job(Loaded(claim(a=a), definition, [argument_of(SOURCE, a) for a in arguments], []))


def value(result: Any) -> bytes:
    return CODEC.seal_value(result)


def outcome(ended: Ended) -> Any:
    """The result of an attempt that went well."""
    assert ended.failure is None, ended.failure
    assert ended.cannot_run == ""
    return codecs.load(CODEC.open(VALUE, ended.outcome)[1])


def failure(ended: Ended) -> Failure:
    """Why an attempt failed."""
    assert ended.failure is not None
    assert ended.outcome == b""
    assert ended.cannot_run == ""
    return ended.failure
