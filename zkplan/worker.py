"""Claim tasks of all ready plans and run them on threads or in processes."""

from __future__ import annotations

import sys
import threading
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Literal

from .author.options import memory_bytes
from .backoff import CHANCE, Backoff
from .basics import __version__
from .basics.public_calls import Duration, in_seconds
from .basics.settings_fields import OUTPUT_MAX
from .errors import ZkplanError
from .protocol.layout import DEFAULT_QUEUE, QUEUE_NAMES, parse_queue
from .runtime.assembly import Assembly
from .runtime.context import PlanWithin
from .runtime.isolation_processes import TASKS_PER_CHILD, Processes
from .runtime.maintenance import POLL_MAX_S
from .runtime.membership import new_identity
from .runtime.output import captured
from .runtime.plan_shares import Policy, check_policy
from .runtime.retention import Collector
from .runtime.runner import Runner
from .runtime.statistics import Statistics
from .runtime.threads import ThreadPool
from .transport.server_clock import CLOCK
from .transport.transport import Mailbox
from .values.functions_by_name import AllowList, registered
from .values.keyring import names_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from .client import Client

#: The slots of a worker. Tasks that compute hold the interpreter lock, so give them more processes,
#: not more threads.
THREADS_DEFAULT = 8
THREADS_MAX = 500


def check_queues(queues: Sequence[str]) -> tuple[str, ...]:
    """The queues, each once, in this order. Raises ZkplanError."""
    if isinstance(queues, str) or not queues:
        raise ZkplanError(f"queues must be a list of at least one name, not {queues!r}")
    for queue in queues:
        if type(queue) is not str or parse_queue(queue) is None:
            raise ZkplanError(f"{queue!r:.60} is not the name of a queue: use {QUEUE_NAMES}")
    return tuple(dict.fromkeys(queues))


def check_isolation(isolation: str, tasks_per_child: int = 1) -> None:
    """Raises ZkplanError for a wrong value, and for "process" on a system other than Linux."""
    if isolation not in ("thread", "process"):
        raise ZkplanError(f'isolation must be "thread" or "process", not {isolation!r:.50}')
    if isolation == "process" and sys.platform != "linux":
        raise ZkplanError('isolation="process" needs Linux, because it controls children by /proc')
    if type(tasks_per_child) is not int or tasks_per_child < 1:
        raise ZkplanError(f"tasks_per_child must be 1 or more, not {tasks_per_child!r:.50}")


def _check(threads: int, max_abandoned: int | None, task_output: int) -> None:
    """Raises ZkplanError for a number out of range."""
    if type(threads) is not int or not 1 <= threads <= THREADS_MAX:
        raise ZkplanError(f"threads must be 1 to {THREADS_MAX}, not {threads!r}")
    if max_abandoned is not None and (type(max_abandoned) is not int or max_abandoned < 1):
        raise ZkplanError(f"max_abandoned must be 1 or more, not {max_abandoned!r}")
    if type(task_output) is not int or not 0 <= task_output <= OUTPUT_MAX:
        raise ZkplanError(f"task_output must be 0 to {OUTPUT_MAX} bytes, not {task_output!r}")


def _allow_list(
    is_json: bool, allow: Iterable[str], kinds: Collection[str], isolation: str
) -> AllowList | None:
    """The functions that a worker with serializer json may run; None for another serializer."""
    if not is_json:
        if tuple(allow):
            raise ZkplanError(
                "a list of allowed functions needs serializer json, because a pickle can call any "
                "function"
            )
        return None
    if isolation == "process":
        raise ZkplanError(
            "a worker with serializer json cannot run tasks in processes of their own: leave out "
            'isolation="process"'
        )
    return AllowList(allow, may_be_empty=bool(kinds))


class Worker:
    """Claims tasks of all ready plans and runs them on `threads` threads.

    A worker watches the index of active plans, so it finds new plans by itself. `backoff` sets how
    often an idle worker looks for work without a watch, in case one was lost: by default ever more
    rarely, up to every 90 s. The worker claims only tasks of
    these `queues`, in order of preference: while the first has tasks that it can run, it takes
    those. A worker runs only once. It must have a client of its own.

    With `isolation="process"` each task runs in a process of its own (Linux only), unless the
    options of the task say otherwise. A task may also ask for a process itself. A child that dies
    costs one attempt of its task alone. `memory_limit` applies to each such task that has no limit
    of its own, in bytes or as a text ("2GB"); the default is a share of this machine's memory.
    After `tasks_per_child` tasks a child is replaced.

    With `task_output` the last that many bytes that each attempt prints and logs are kept with the
    history of its plan (`Task.logs`), at most 65 536. To do so, the worker replaces `sys.stdout`
    and `sys.stderr` of this process while it runs (they still pass everything on), so the default
    here is 0, off. `zkplan worker` keeps 16 KiB.

    `share` decides which plan is next, among those whose tasks have the highest priority now: the
    oldest ("greedy"), the plans in turn with equal slot-seconds ("balanced"), or in turn by their
    weights ("weighted"; see `Plan.set`). Each worker shares its own slots.

    With a client of serializer "json" the worker decodes no pickle, and runs only functions that
    `allow` names. Each entry is MODULE:PATTERN, such as "mypkg.tasks:*" (`zkplan:shell` for
    commands). The worker imports no module for another function, and cannot isolate tasks. It takes
    tasks of the kinds for which this process has a function with `@zkplan.kind` now.

    Raises ZkplanError for a value out of range, a wrong name of a queue or of a policy, and for an
    `allow` that is missing, wrong, or given with another serializer.
    """

    def __init__(
        self,
        client: Client,
        threads: int = THREADS_DEFAULT,
        backoff: Backoff | None = None,
        queues: Sequence[str] = (DEFAULT_QUEUE,),
        *,
        isolation: Literal["thread", "process"] = "thread",
        memory_limit: str | int | None = None,
        tasks_per_child: int = TASKS_PER_CHILD,
        max_abandoned: int | None = None,
        allow: Iterable[str] = (),
        share: Policy = "weighted",
        task_output: int = 0,
    ) -> None:
        """A function that was given up (timed out, cancelled) but goes on holds its thread. With
        `max_abandoned` the worker drains and ends, with a grace of 30 seconds, once that many
        functions have held theirs for 10 seconds. Without, it goes on with fewer slots."""
        _check(threads, max_abandoned, task_output)
        check_isolation(isolation, tasks_per_child)
        kinds = registered()
        allowed = _allow_list(client.codec.is_json_only, allow, kinds, isolation)
        self._captures = captured if task_output else nullcontext
        self._processes = Processes(
            client.codec,
            threads,
            isolation == "process",
            memory_bytes(memory_limit, "the worker"),
            tasks_per_child,
        )
        self.client, self.queues = client, check_queues(queues)
        self._values = client.values.for_worker(allowed)
        self._loop = Assembly(
            transport=client.transport,
            paths=client.paths,
            codec=self._values.codec,
            clock=CLOCK,
            chance=CHANCE,
            inbox=Mailbox(),
            make_pool=partial(self._make_pool, threads),
            identity=new_identity(),
            queues=self.queues,
            kinds=kinds,
            keys=names_of(client.keys),
            version=__version__,
            isolation=self._processes.default,
            backoff=backoff or Backoff(initial_s=0.5, max_s=POLL_MAX_S),
            share=check_policy(share),
            max_abandoned=max_abandoned,
            output_max=task_output,
            sweeper=client.sweeper,
            collector=Collector(client),
            recorder=client.recorder,
        ).loop
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def _make_pool(self, threads: int, parts: Assembly) -> ThreadPool:
        client = self.client
        self._runner = Runner(
            transport=client.transport,
            values=self._values,
            plan_within=lambda job: PlanWithin(
                client, job.claim.plan_path, job.plan, job.claim.task, job.adds, shares=True
            ),
            vanished=parts.vanished,
            queues=self.queues,
            is_busy=lambda: parts.pool.waiting() > 0,
            isolation=self._processes,
            clock=parts.clock,
            server_clock=parts.server_clock,
            output_max=parts.output_max,
        )
        return ThreadPool(threads, self._runner.run, parts.ended.put, parts.ended.wake)

    @property
    def id(self) -> str:
        """The ID under which the worker registers. After a lost session it gets a suffix."""
        return self._loop.membership.worker

    @property
    def is_worn_out(self) -> bool:
        """Whether `max_abandoned` has ended the worker, or is about to."""
        return self._loop.wear.is_worn_out

    def on_ready(self, callback: Callable[[str], None]) -> None:
        """Call `callback(id)` each time the worker is registered."""
        self._loop.ready = callback

    @property
    def drained(self) -> bool:
        """Whether an operator has asked the worker to drain (`Client.drain_worker`)."""
        return self._loop.membership.state == "draining"

    def statistics(self) -> Statistics:
        """A snapshot of what the worker has done since its start."""
        return self._loop.counters.snapshot()

    def run(self) -> None:
        """Run tasks until `stop` is called. Raises the error that ended the worker, if one did."""
        self.client.prepare()
        self._processes.start()
        try:
            with self._captures():
                self._loop.run()
        finally:
            self._runner.close()

    def start(self) -> Worker:
        """Run tasks on a thread of its own. Returns the worker."""
        if self._thread is not None:
            raise ZkplanError("this worker was started already: make a new one")
        self._thread = threading.Thread(target=self._run, name="zkplan-worker", daemon=True)
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self._failure = error

    def stop(self, grace: Duration = 30.0) -> None:
        """Drain the worker: it claims nothing more, and running tasks have `grace` seconds to end.

        It then hands back the tasks that have not ended, which costs them no attempt. After
        `start`, this waits until the worker has ended, and raises the error that ended it, if any.
        After `run`, call this from another thread or a signal handler: it returns at once.
        """
        self._loop.stop(in_seconds(grace))
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
            if self._failure is not None:
                raise self._failure

    def __enter__(self) -> Worker:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
