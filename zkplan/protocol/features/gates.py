"""Gates: tasks that wait for a znode outside their plan.

The entry of a gate is under `ROOT/gates` instead of `runnable` until a worker has read that its
condition holds. Its opening checks the znode in the same transaction, as far as ZooKeeper can.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeGuard, get_args

from ...errors import PayloadUndecodable
from ..core.edges import argument_of
from ..core.load import read_all
from ..fields import as_retention, as_whole, from_json, require_proven, to_json
from ..layout import (
    Delayed,
    Entry,
    GateEntry,
    Paths,
    entry_path,
    gate_name,
    number_of,
    parse_delayed,
    parse_gate,
    parse_plan,
)
from ..requests import (
    Applied,
    Check,
    Create,
    Delete,
    Multi,
    Node,
    Op,
    ReadChildren,
    ReadData,
    ReadMany,
    Reason,
    Refused,
    SetData,
    Step,
)
from ..transactions import ensure

#: The position of the only argument of a gate.
ARGUMENT = "arg-0000000000"
#: How many gates one transaction opens, or how many notes on gates it writes.
OPENED_PER_MULTI = 100
PATH_CHARS_MAX = 1000
Kind = Literal["exists", "absent", "value", "children"]
_KINDS: tuple[Kind, ...] = get_args(Kind)


class Condition(NamedTuple):
    """What a gate waits for: that the znode exists, is absent, holds `value`, or has at least
    `children` children. With `take`, the gate hands on the value (or the children) of the
    znode. It fails after `timeout` seconds."""

    path: str
    kind: Kind
    value: bytes = b""
    children: int = 0
    timeout: float | None = None
    take: bool = True

    def to_bytes(self) -> bytes:
        facts = self._asdict() | {"value": base64.b64encode(self.value).decode()}
        return to_json(facts)

    @classmethod
    def from_bytes(cls, data: bytes) -> Condition:
        """Raises PayloadUndecodable."""
        what = "a gate"
        facts = from_json(data, what)
        path = facts.get("path")
        kind: Kind | None = next((each for each in _KINDS if each == facts.get("kind")), None)
        if not is_path(path) or kind is None:
            raise PayloadUndecodable("a gate has no path or a condition of a newer zkplan")
        try:
            value = base64.b64decode(str(facts.get("value", "")), validate=True)
        except (binascii.Error, ValueError):
            raise PayloadUndecodable("the value of a gate is not base64") from None
        children = as_whole(facts.get("children", 0), what)
        timeout = as_retention(facts.get("timeout"))
        return cls(path, kind, value, children, timeout, facts.get("take") is not False)

    @property
    def text(self) -> str:
        """
        >>> Condition("/deploy/done", "exists").text
        'znode /deploy/done to exist'
        """
        if self.kind == "children":
            return f"znode {self.path} to have {self.children:,} or more children"
        end = {"exists": "to exist", "absent": "to be gone", "value": "to hold its value"}
        return f"znode {self.path} {end[self.kind]}"


def is_path(path: Any) -> TypeGuard[str]:
    """Whether a znode can have that path. A path that cannot be sent would end a worker."""
    if not isinstance(path, str) or len(path) > PATH_CHARS_MAX or not path.isprintable():
        return False
    return path.startswith("/") and not {"", ".", ".."} & set(path[1:].split("/"))


class Seen(NamedTuple):
    """A znode as it was read: `node` is None if it does not exist, `names` if they were not
    read."""

    node: Node | None
    names: Sequence[str] | None = None

    def fits(self, wanted: Condition) -> bool:
        """Whether the condition held when this was read."""
        if wanted.kind == "absent" or self.node is None:
            return (wanted.kind == "absent") is (self.node is None)
        if wanted.kind == "children":
            return self.names is not None and len(self.names) >= wanted.children
        return wanted.kind == "exists" or self.node.data == wanted.value

    def guard(self, wanted: Condition) -> list[Op]:
        """The check in the transaction that opens the gate. ZooKeeper can check that a znode
        exists, and its version, but not that it is absent or how many children it has."""
        if wanted.kind == "absent" or self.node is None:
            return []
        return [Check(wanted.path, -1 if wanted.kind == "children" else self.node.version)]


class Opening(NamedTuple):
    """A gate to open: the name of its entry, and its sealed argument."""

    name: str
    gate: GateEntry
    argument: bytes


class Opened(NamedTuple):
    """The result of opening gates. `changed`: the znode has changed since it was read. `shut`: why
    entries cannot be moved, by name."""

    changed: bool
    shut: dict[str, str]


def ensure_gates(root: str) -> Step[None]:
    """Create `ROOT/gates` before the first gate under the root is sent.

    Once an add was refused because `gates` was missing, it is too late: a copy of that add may be
    under way, and would then be applied.
    """
    yield from ensure(f"{root}/gates")


def wait_again_ops(plan_path: str, entry: Entry, queue: str) -> list[Op]:
    """Let a gate that was opened before wait again, with another N."""
    root, _, plan = plan_path.rpartition("/")
    return [
        Delete(f"{plan_path}/task-{entry.task}/{ARGUMENT}"),
        Create(f"{root}/gates/{gate_name(number_of(plan), entry, queue)}"),
    ]


class Read(NamedTuple):
    """A gate as it was read: its sealed condition, the creation time and the data of its entry."""

    name: str
    sealed: bytes
    created_ms: int
    note: bytes


def read_gates(paths: Paths, names: Sequence[str]) -> Step[list[Read]]:
    """Read the gates in `names` that exist and may be read."""
    found, reads = [], []
    known = [(name, gate) for name in names if (gate := parse_gate(name)) is not None]
    for name, gate in known:
        reads.append(ReadData(f"{paths.gates}/{name}"))
        reads.append(ReadData(f"{paths.task(gate.plan, gate.entry.task)}/gate"))
    nodes = yield from read_all(reads, None)
    for (name, _), entry, node in zip(known, nodes[::2], nodes[1::2], strict=True):
        if entry is not None:
            sealed = node.data if node is not None else b""
            found.append(Read(name, sealed, entry.created_ms, entry.data))
    return found


def look_at(path: str, with_children: bool) -> Step[Seen]:
    """Read a znode that gates wait for, with a watch, and another one for its children.

    Raises AccessDenied, and PayloadUndecodable for a znode below the root that is not sealed with a
    known key.
    """
    node = yield ReadData(path, watch=True)
    require_proven(node.data if node is not None else b"")
    if node is None or not with_children:
        return Seen(node)
    return Seen(node, (yield ReadChildren(path, watch=True)))


def open_gates(paths: Paths, guard: Sequence[Op], openings: Sequence[Opening]) -> Step[Opened]:
    """Make gates runnable in one transaction that starts with `guard`. Any worker may try: the
    entry of a gate is deleted once, and its name is never used again. After a lost answer nothing
    needs to be read."""
    todo, shut = list(openings), dict[str, str]()
    while todo:
        ops: list[Op] = [*guard]
        for name, gate, argument in todo:
            ops.append(Delete(f"{paths.gates}/{name}"))
            task = gate.entry.task
            own = argument_of(task, argument, ended=False)
            ops.append(Create(f"{paths.task(gate.plan, task)}/{ARGUMENT}", own))
            ops.append(Create(entry_path(paths.plan(gate.plan), gate.queue, gate.entry)))
        answer = yield Multi(ops)
        if isinstance(answer, Applied):
            break
        if answer.at < len(guard):
            return Opened(True, shut)
        at, op = divmod(answer.at - len(guard), 3)
        name = todo.pop(at).name
        if op and answer.reason is Reason.NO_NODE:
            yield Multi([Delete(f"{paths.gates}/{name}")])  # its plan was removed
        elif answer.reason is not Reason.NO_NODE:  # else another worker has opened it
            shut[name] = answer.why
    return Opened(False, shut)


def write_notes(paths: Paths, notes: dict[str, bytes]) -> Step[None]:
    """Write into the entries of gates why their znodes cannot be read, so that `why` can tell."""
    todo = list(notes.items())
    while todo:
        batch, todo = todo[:OPENED_PER_MULTI], todo[OPENED_PER_MULTI:]
        answer = yield Multi([SetData(f"{paths.gates}/{name}", data) for name, data in batch])
        if isinstance(answer, Refused):
            del batch[answer.at]
            todo = batch + todo


def note_look(paths: Paths, worker: str) -> Step[int]:
    """Write that this worker has looked at all gates, unless its name is empty. Returns a time in
    ms that is never ahead of the server's clock. Time-outs run from the creation of an entry to
    that time, whatever the clocks of workers say."""
    if worker:
        yield Multi([SetData(paths.gates, to_json({"worker": worker}))])
    node = yield ReadData(paths.gates)
    return node.modified_ms if node is not None else 0


def remove_waiting(plan_path: str) -> Step[None]:
    """Delete the delayed entries and the gates of a plan whose tasks are gone."""
    root, _, name = plan_path.rpartition("/")
    reads = [ReadChildren(f"{root}/delayed"), ReadChildren(f"{root}/gates")]
    delayed, gates = yield ReadMany(reads)
    paths = [
        *(f"{root}/delayed/{each}" for each in delayed or () if _is_of(parse_delayed(each), name)),
        *(f"{root}/gates/{each}" for each in gates or () if _is_of(parse_gate(each), name)),
    ]
    for path in paths:
        yield Multi([Delete(path)])  # a worker may have moved it meanwhile


def _is_of(entry: Delayed | GateEntry | None, name: str) -> bool:
    return entry is not None and entry.plan == parse_plan(name)
