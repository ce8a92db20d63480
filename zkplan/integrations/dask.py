"""Run Dask graphs as plans."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from dask._task_spec import Alias, DataNode, GraphNode, convert_legacy_graph, cull
from dask._task_spec import Task as DaskTask
from dask.core import flatten
from dask.local import nested_get
from dask.order import order
from dask.sizeof import sizeof

from ..author.task_specs import TaskSpec
from ..basics.log import get_logger
from ..basics.public_calls import Duration
from ..client import Client
from ..errors import InvalidTask, PlanError, PlanFailed, PlanNotFound, ZkplanError
from ..plan import Plan
from ..protocol.layout import PRIORITY_MAX
from ..protocol.task_options import NAME_CHARS_MAX
from ..tasks import Task

logger = get_logger("zkplan.plan")

#: Larger data that several tasks take becomes a task of its own, so that it is sent once.
SHARED_BYTES = 32 * 1024


class ZkplanScheduler:
    """Computes Dask graphs on the workers of the client's root. It is thread-safe.

        get = ZkplanScheduler(client)
        dask.array.ones(1000, chunks=100).sum().compute(scheduler=get)

    Each computation is a plan, which is removed once its results are fetched or a function has
    failed. The workers need Dask, and the packages that the graph uses.
    """

    def __init__(
        self,
        client: Client,
        name: str | None = None,
        *,
        keep_plan: bool = False,
        attempts: int = 3,
        retry_delay: Duration = 0.1,
        timeout: Duration | None = None,
        priority: int = 0,
    ) -> None:
        """`attempts` to `priority` are the options of each task; see `Plan.add_task`.

        With a `name`, the plan has this name and survives its author: the next computation with
        the same keys waits for the plan and takes its results. Only one process at a time may
        compute under a name. With `keep_plan`, the plan stays, and its results can be fetched again
        until it is removed.
        """
        self._client, self._name, self._keep_plan = client, name, keep_plan
        self._options: dict[str, Any] = {
            "attempts": attempts,
            "retry_delay": retry_delay,
            "timeout": timeout,
            "priority": priority,
        }
        #: Held while a plan with a name is used, so that two threads do not make two plans, and
        #: none removes the plan while another reads it.
        self._lock: AbstractContextManager[Any] = (
            threading.Lock() if name is not None else nullcontext()
        )

    def __call__(self, dsk: Any, keys: Any, **_: Any) -> Any:
        """Compute the values of `keys`, a key or a list of keys at any depth. Dask calls this.

        Raises the exception of a function that is out of attempts, KeyError for a key that is not
        in the graph, PlanError if the plan of this name has another graph, InvalidTask for a
        shuffle on disk, and as `Plan.add_tasks` and `Plan.wait`. Other keywords of `compute`, such
        as `num_workers`, are ignored.
        """
        graph = _Graph(dsk, keys)
        values = graph.data()
        if graph.asked:
            with self._lock:
                plan, tasks = self._attach(graph) or self._create(graph)
                values.update(zip(graph.asked, self._results(plan, tasks), strict=True))
        return nested_get(keys, {key: values[graph.source(key)] for key in graph.keys})

    def __deepcopy__(self, memo: object) -> ZkplanScheduler:
        """Return `self`: `distributed` copies Dask's configuration, which may hold this object."""
        return self

    def _attach(self, graph: _Graph) -> tuple[Plan, list[Task]] | None:
        """The plan of this name, if it exists, and its tasks for the wanted keys."""
        if self._name is None:
            return None
        try:
            plan = self._client.plan(self._name, only=True)
        except PlanNotFound:
            return None
        if plan.status().state == "defining":
            plan.remove()  # its author died before all tasks were added
            return None
        try:
            numbers = plan.task(graph.label).result()
        except InvalidTask:
            raise PlanError(
                plan.path,
                f"{plan.path}, named {self._name!r}, has another graph than this one, or no graph "
                "of Dask: compute under another name, or remove that plan. If the code is the "
                "same, its keys differ from run to run: give dask.delayed pure=True, random arrays "
                "a seed, and dask_key_name where Dask cannot name a value by its content",
            ) from None
        return plan, [plan.task(number) for number in numbers]

    def _create(self, graph: _Graph) -> tuple[Plan, list[Task]]:
        specs = graph.specs()
        plan = self._client.create_plan(self._name, **self._options)
        try:
            tasks = dict(zip(specs, plan.add_tasks(list(specs.values())), strict=True))
            asked = [tasks[key] for key in graph.asked]
            if self._name is not None:
                # From this task the next author learns the graph, and the wanted results.
                plan.add_task(
                    return_numbers,
                    [[task.number for task in asked]],
                    name=graph.label,
                    priority=PRIORITY_MAX,
                    keep=True,
                )
            plan.mark_ready()
        except BaseException:
            _remove(plan)
            raise
        return plan, asked

    def _results(self, plan: Plan, tasks: list[Task]) -> list[Any]:
        has_ended = self._name is None  # a plan without a name cannot be found again
        try:
            plan.wait(fail_fast=True)
            results = plan.results(tasks)
            has_ended = True
            return results
        except PlanFailed:
            has_ended = True
            for number, _ in plan.dead():
                plan.task(number).result()  # raises the exception of the function
            raise
        except KeyboardInterrupt:
            if has_ended and self._keep_plan:
                plan.cancel()  # nobody waits for the plan, but its views stay
            raise
        finally:
            if has_ended and not self._keep_plan:
                _remove(plan)


class _Graph:
    """A Dask graph, reduced to the nodes that the wanted keys need."""

    def __init__(self, dsk: Any, keys: Any) -> None:
        """Raises KeyError and InvalidTask; RuntimeError for a cycle."""
        nodes = convert_legacy_graph(dsk if isinstance(dsk, Mapping) else dsk.__dask_graph__())
        self.keys: list[Any] = list(flatten([keys]))
        for key in self.keys:
            if key not in nodes:
                raise KeyError(key)
        self._nodes: dict[Any, GraphNode] = cull(nodes, set(self.keys))
        ranks = order(self._nodes)
        self._takers = Counter(
            self.source(key) for node in self._nodes.values() for key in node.dependencies
        )
        #: The keys that are tasks, each after those that it depends on.
        self.tasks = [key for key in sorted(self._nodes, key=ranks.__getitem__) if self._runs(key)]
        tasks = set(self.tasks)
        #: The tasks whose results are wanted.
        self.asked = list(dict.fromkeys(key for key in map(self.source, self.keys) if key in tasks))

    @property
    def label(self) -> str:
        """A name that is the same for graphs with the same tasks and the same wanted results."""
        names = [*sorted(map(self._stable, self.tasks)), "", *map(self._stable, self.asked)]
        digest = hashlib.blake2b("\n".join(names).encode(), digest_size=16)
        return f"dask graph {digest.hexdigest()}"

    def _stable(self, key: Any) -> str:
        """The key, or for the task that joins the blocks of an array or bag, the keys of the
        blocks: the key of such a task differs between processes."""
        joined = self._nodes[key].dependencies if str(key).startswith("finalize-") else ()
        return f"finalize {sorted(map(str, joined))}" if joined else str(key)

    def source(self, key: Any) -> Any:
        """The key that an alias leads to in the end; any other key itself."""
        while isinstance(node := self._nodes[key], Alias):
            key = node.target
        return key

    def data(self) -> dict[Any, Any]:
        """The values of the wanted keys that are data, not tasks."""
        sources = map(self.source, self.keys)
        return {
            key: self._nodes[key]() for key in sources if isinstance(self._nodes[key], DataNode)
        }

    def specs(self) -> dict[Any, TaskSpec]:
        """The tasks by key. Raises InvalidTask for a task that cannot run on several machines."""
        specs: dict[Any, TaskSpec] = {}
        asked = set(self.asked)
        for key in self.tasks:
            node = self._nodes[key]
            _refuse_disk(key, node)
            values = {}
            for needed in node.dependencies:
                source = self.source(needed)
                values[needed] = specs[source] if source in specs else self._nodes[source]()
            keep = True if key in asked else None
            specs[key] = TaskSpec(run_node, (node, values), name=_task_name(key), keep=keep)
        return specs

    def _runs(self, key: Any) -> bool:
        node = self._nodes[key]
        if isinstance(node, DataNode):
            return self._takers[key] > 1 and sizeof(node.value) > SHARED_BYTES
        return not isinstance(node, Alias)


def run_node(node: GraphNode, values: dict[Any, Any]) -> Any:
    """Run a node of a Dask graph with the values of its dependencies. A task runs this."""
    return node(values)


def return_numbers(numbers: list[str]) -> list[str]:
    """Return the numbers of the tasks whose results are wanted. A kept task runs this."""
    return numbers


def _task_name(key: Any) -> str:
    text = "".join(each if each.isprintable() else "?" for each in str(key))
    return text if len(text) <= NAME_CHARS_MAX else f"{text[: NAME_CHARS_MAX - 1]}…"


def _functions(node: Any) -> Iterator[Any]:
    """All functions that a node calls, also those of nodes fused into it."""
    if isinstance(node, DaskTask):
        yield node.func
        for part in (*node.args, *node.kwargs.values()):
            for inner in part.values() if isinstance(part, dict) else (part,):
                yield from _functions(inner)


def _is_file_here(function: Any) -> bool:
    package = str(getattr(function, "__module__", "")).partition(".")[0]
    return package == "partd" or type(function).__name__ == "maybe_buffered_partd"


def _refuse_disk(key: Any, node: GraphNode) -> None:
    """Refuse a shuffle on disk: it appends to files of one machine, twice in two attempts."""
    if any(map(_is_file_here, _functions(node))):
        raise InvalidTask(
            str(key),
            "Dask would shuffle through files of one machine, which other workers do not see and a "
            "second attempt would fill twice: set the option of Dask "
            '{"dataframe.shuffle.method": "tasks"}',
        )


def _remove(plan: Plan) -> None:
    try:
        plan.remove()
    except ZkplanError as error:
        logger.warning("%s of a Dask computation was not removed: %s", plan.path, error)
