"""Edges between tasks: define one, deliver a result along it, and check whose result arrives."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import NamedTuple

from ...errors import PayloadUndecodable
from ..fields import Unproven, as_queue, as_rank, as_text, from_json, require_proven
from ..layout import DEFAULT_QUEUE, entry_path
from ..records import SOURCE_BYTES, ready_to_bytes
from ..requests import Create, Delete, Op, SetData
from ..transactions import Dependent

#: In the record of an edge whose dependent takes failures.
FAILS = ',"fails":true'
_EDGE = re.compile(
    rb'\{"dep":"task-([0-9]{10})/dep-([0-9]{10})","k":([0-9]|[1-9][0-9]{1,8}),'
    rb'"entry":"([0-9]{4})-\1"\}'
)


class Edge(NamedTuple):
    """The data of a `prov-`: the dependent's `dep-`, its number of edges, rank and queue.

    `fails`: the dependent takes failures, so a dead source delivers its failure. `n` is the N of
    the dependent's next claim: above 0 if the dependent ran before, see `reopen`.
    """

    task: str
    position: str
    k: int
    rank: str
    queue: str = DEFAULT_QUEUE
    fails: bool = False
    n: int = 0

    def to_bytes(self) -> bytes:
        # json.dumps costs six times as much, and edges are the most frequent record.
        more = "" if self.queue == DEFAULT_QUEUE else f',"queue":"{self.queue}"'
        if self.fails:
            more += FAILS
        if self.n:
            more += f',"n":{self.n}'
        return (
            f'{{"dep":"task-{self.task}/dep-{self.position}","k":{self.k},'
            f'"entry":"{self.rank}-{self.task}"{more}}}'
        ).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Edge:
        """Raises PayloadUndecodable."""
        # Parsing JSON costs five times as much, so the usual form is matched first.
        if found := _EDGE.fullmatch(data):
            task, position, written, rank = map(bytes.decode, found.groups())
            return cls(task, position, int(written), rank)
        value = from_json(data, "an edge")
        dep = as_text(value.get("dep"))
        task, position = dep[-25:-15], dep[-10:]
        numbers = task + position
        is_number = numbers.isascii() and numbers.isdecimal()
        if len(numbers) != 20 or not is_number or dep[-15:-10] != "/dep-":
            raise PayloadUndecodable(f"an edge does not name a `dep-`: {dep!r:.100}")
        k, n, rank = value.get("k"), value.get("n", 0), as_rank(value.get("entry"))
        if type(k) is not int or not 0 <= k < 2**31 or not rank:
            raise PayloadUndecodable("an edge does not hold K and the entry of its dependent")
        n = n if type(n) is int and 0 <= n < 2**31 else 0
        queue, fails = as_queue(value.get("queue")), value.get("fails") is True
        return cls(task, position, k, rank, queue, fails, n)

    def dependent(self, plan: str) -> Dependent:
        """The task that the edge leads to."""
        return Dependent(plan, self.task, self.k, self.rank, self.queue, self.n)


def edge_ops(
    plan_path: str,
    source: str,
    task: str,
    position: int,
    k: int,
    rank: str,
    queue: str = DEFAULT_QUEUE,
    fails: bool = False,
) -> list[Op]:
    """Let `task` wait for `source` at `position`: both ends of the edge."""
    # Edge.to_bytes without the tuple, because this runs for every edge of a plan.
    more = "" if queue == DEFAULT_QUEUE else f',"queue":"{queue}"'
    if fails:
        more += FAILS
    data = f'{{"dep":"task-{task}/dep-{position:010d}","k":{k},"entry":"{rank}-{task}"{more}}}'
    return [
        Create(f"{plan_path}/task-{task}/dep-{position:010d}", source.encode()),
        Create(f"{plan_path}/task-{source}/prov-", data.encode(), sequence=True),
    ]


def delivery_ops(
    plan_path: str, task_path: str, prov: str, edge: Edge, argument: bytes
) -> list[Op]:
    """Deliver `argument` along an edge of the task at `task_path`. The third operation counts the
    arrival."""
    dependent = f"{plan_path}/task-{edge.task}"
    return [
        Create(f"{dependent}/arg-{edge.position}", argument),
        Delete(f"{dependent}/dep-{edge.position}"),
        SetData(f"{dependent}/ready", ready_to_bytes(edge.k, edge.queue)),
        Delete(f"{task_path}/{prov}"),
    ]


def publish_ops(plan_path: str, target: Dependent, *, entry: bool = True) -> list[Op]:
    """Publish a complete task: raise K to K+1, which only one worker can do. Without an `entry` a
    claim takes its place."""
    k, queue = target.k, target.queue
    ops: list[Op] = [SetData(f"{plan_path}/task-{target.task}/ready", ready_to_bytes(k, queue), k)]
    if entry:
        ops.append(Create(entry_path(plan_path, queue, target.entry)))
    return ops


def is_added(path: str, plan_path: str, edges: Sequence[tuple[str, Edge]]) -> bool:
    """Whether a refused `path` belongs to added tasks, not to a delivery along `edges`."""
    own = {f"{plan_path}/task-{edge.task}" for _, edge in edges}
    return path.endswith(("/prov-", "/ready")) and path.rpartition("/")[0] not in own


# ---- Sources: the definition of a task names the task of each argument, and so does the argument.
#
# A worker compares the two. So a task refuses a result that came along a forged edge, and edges
# need no seal.


NUMBER_BYTES = 10
#: Before the envelope of an argument: the ten digits of a task, and whether the task ended with
#: that outcome. If not, the task is dead, and a retry may give it another outcome.
HEAD_BYTES = NUMBER_BYTES + 1
ENDED, NOT_ENDED = b"=", b"-"


def with_sources(record: bytes, numbers: Sequence[str]) -> bytes:
    """The data of a task: its definition, and the source of each position. A gate names
    itself: the worker that opens the gate makes its argument."""
    return record + struct.pack(f">{len(numbers)}I", *map(int, numbers)) if numbers else record


def argument_of(number: str, outcome: bytes, *, ended: bool = True) -> bytes:
    """The data of an argument: an outcome of task `number`. `ended`: the task ends with it; a gate
    has not ended when it is opened. Raises as `require_proven`."""
    require_proven(outcome)  # joined to the number, it would be plain bytes
    return number.encode() + (ENDED if ended else NOT_ENDED) + outcome


def outcome_in(argument: bytes) -> bytes:
    """The outcome that an argument holds. Raises as `require_proven`."""
    require_proven(argument)
    return argument[HEAD_BYTES:]


def sources_of(record: bytes, positions: int) -> list[str]:
    """The source of each position, from the data of a task; empty if they are too short."""
    start = len(record) - SOURCE_BYTES * positions
    if start < 0:
        return []
    return [f"{n:010d}" for n in struct.unpack_from(f">{positions}I", record, start)]


def source_in(argument: bytes) -> str:
    """The source of an argument. Raises as `require_proven`."""
    require_proven(argument)
    return argument[:NUMBER_BYTES].decode(errors="backslashreplace")


def misplaced(record: bytes, arguments: Sequence[bytes]) -> str:
    """Which argument has another source than the definition says; empty if none has.

    There is one argument for each position. Refused data is skipped: it carries its error.
    """
    at = len(record) - SOURCE_BYTES * len(arguments)
    for position, argument in enumerate(arguments):
        number = b"%010d" % int.from_bytes(record[at : at + SOURCE_BYTES], "big")
        if argument[:NUMBER_BYTES] != number and not isinstance(argument, Unproven):
            found = argument[:NUMBER_BYTES].decode(errors="backslashreplace")
            return (
                f"arg-{position:010d} is not used: it is the outcome of task {found}, and its "
                f"definition names task {number.decode()} there"
            )
        at += SOURCE_BYTES
    return ""
