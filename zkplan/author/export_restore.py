"""Restore the znodes of an exported plan under a new number, and its blobs in another store.

Until the last transaction the new plan has another name, and neither `add-count` nor `ready`. So no
task can be added or claimed, and a search by name does not find an incomplete plan. Each
transaction checks the version of the plan's znode that the previous transaction made. So a repeated
transaction is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby, repeat
from pathlib import Path
from typing import NamedTuple

from ..errors import PayloadUndecodable, PlanExists, PlanNotFound, StoredValueLost, ZkplanError
from ..protocol.core.plan_life import failed_tasks
from ..protocol.core.plans_and_queues import plan_records
from ..protocol.features.author import create_plan
from ..protocol.features.gates import ensure_gates
from ..protocol.features.keys import find_key, key_ops
from ..protocol.layout import (
    PLAN_FIXED,
    Paths,
    active_entry,
    delayed_name,
    failed_entry,
    is_gate_entry,
)
from ..protocol.records import PlanRecord, control_from_bytes
from ..protocol.requests import Applied, Create, Delete, Multi, Op, ReadData, SetData, Step
from ..protocol.transactions import GROUP_BYTES_MAX, OP_OVERHEAD, ensure, rejected
from ..values.check_blobs import moved, names_in, references_in
from ..values.plan_values import Values, folder_name
from ..values.store import Store
from .export_snapshot import LAST, Znode, delayed_of

#: Operations per transaction.
BATCH_OPS = 1000
#: The end of a plan's name until the whole plan is written.
HALF = "(half imported)"


def find_twin(paths: Paths, uid: str) -> Step[str | None]:
    """The path of the plan with this `uid` under the root, or None."""
    for path, record in (yield from plan_records(paths)) if uid else ():
        if record is not None and record.uid == uid:
            return path
    return None


def begin(paths: Paths, record: PlanRecord) -> Step[tuple[str, bytes]]:
    """Create a plan that is marked as half imported. Returns its number, and the mark: its data.

    In the end `fill` sets the name and the key. Raises PlanExists if another plan has the key.
    """
    held = (yield from find_key(paths, record.key)) if record.key else None
    if held is not None:
        other = paths.plan(held.number)
        raise PlanExists(
            other,
            f"{other} has the key {record.key!r} of the imported plan: remove {other} first, or "
            "ask for a second plan (--copy), which gets no key",
        )
    if record.key:
        yield from ensure(paths.keys)
    name, uid = f"{record.name} {HALF}".strip(), os.urandom(12).hex()
    half = replace(record, name=name, uid=uid, key="", history=False)
    number = yield from create_plan(paths, half, [name for name in PLAN_FIXED if name not in LAST])
    return number, half.to_bytes()


def fill(
    paths: Paths,
    plan: str,
    mark: bytes,
    creates: int,
    record: bytes,
    znodes: Iterable[Znode],
) -> Step[None]:
    """Write all `znodes` into the plan that `begin` made, and write its `record` at the end.

    `creates` is how many children the exported plan ever had, so that the next task gets the number
    that it would have got there. If the iterator raises, the plan stays half imported.
    """
    path, last = paths.plan(plan), dict[str, bytes]()
    step, ops, size, has_gates = 0, list[Op](), 0, False
    for op in _operations(paths, plan, creates, znodes, last):
        if not has_gates and is_gate_entry(op.path, path):
            yield from ensure_gates(paths.root)
            has_gates = True
        added = OP_OVERHEAD + len(op.path) + len(getattr(op, "data", b""))
        if ops and (len(ops) >= BATCH_OPS or size + added > GROUP_BYTES_MAX):
            yield from _write(path, step, mark, ops)
            step, ops, size = step + 1, [], 0
        ops.append(op)
        size += added
    yield from _write(path, step, mark, ops)
    if failed_tasks(last.get("done", b"")):
        yield Multi([Create(paths.failed)])  # the last transaction makes an entry there
    ends = _last_ops(path, last)
    key = PlanRecord.from_bytes(record).key
    if key:
        ends += key_ops(paths, key, None)(plan)
    yield from _write(path, step + 1, record, ends)


def _write(path: str, step: int, data: bytes, ops: list[Op]) -> Step[None]:
    """Send transaction number `step`, which sets the plan's znode to `data`.

    If an earlier copy of the transaction was applied and its answer lost, the version that the
    transaction checks has grown by one.
    """
    answer = yield Multi([SetData(path, data, step), *ops])
    if isinstance(answer, Applied):
        return
    if answer.at == 0:
        node = yield ReadData(path)
        if node is None:
            raise PlanNotFound(path, f"{path} was removed during its import")
        if answer.repeated and node.version == step + 1:
            return
    error = rejected(f"importing {path}", answer)
    error.args = (f"{error}; the plan is only half imported: remove it and import it again",)
    raise error


def _operations(
    paths: Paths, plan: str, creates: int, znodes: Iterable[Znode], last: dict[str, bytes]
) -> Iterator[Op]:
    """The operations that make the znodes. `last` gets the data of those that the last transaction
    makes."""
    path = paths.plan(plan)
    made = len(PLAN_FIXED) - 1
    children = 0
    for znode in znodes:
        here, _, name = znode.path.partition("/")
        if here in LAST:
            last[here] = znode.data
            made += 1
        elif not name:
            made, children = made + 1, 0
            yield Create(f"{path}/{here}", znode.data)
        elif here == "gates":
            yield Create(f"{paths.gates}/{plan}-{name}")
        elif here == "delayed":
            delayed = delayed_of(znode.path, plan)
            if delayed is not None:
                due = delayed_name(delayed.due_ms, plan, delayed.entry, delayed.queue)
                # An archive of an older version has no delay, so only the due time counts.
                yield Create(f"{paths.delayed}/{due}", znode.data)
        else:
            if name.startswith(("prov-", "log-")):
                # Renumber by the task's new counter. The old numbers may be higher, and the counter
                # would later give such a number to another edge or log.
                name = f"{name.partition('-')[0]}-{children:010d}"
            children += 1
            child = f"{path}/{here}/{name}"
            yield Create(child, znode.data)
            # The version counts the arrivals, and each write raises it by one.
            yield from repeat(SetData(child, znode.data), znode.version)
    for _ in range(creates - made):
        yield Create(f"{path}/gap")
        yield Delete(f"{path}/gap")


def _last_ops(path: str, last: dict[str, bytes]) -> list[Op]:
    ended = "done" in last or control_from_bytes(last.get("ready", b"")) == "cancelled"
    if not ended:
        last.setdefault("add-count", b"")  # it may have been deleted by hand
    ops: list[Op] = [Create(f"{path}/{name}", last[name]) for name in LAST if name in last]
    if "ready" in last and not ended:
        ops.append(Create(active_entry(path)))
    if failed_tasks(last.get("done", b"")):
        ops.append(Create(failed_entry(path)))
    return ops


# ---- The blobs of a plan on their way into an exported file, and out of it into another store.


#: Bytes of one line of the file, before base64.
PIECE_BYTES = 1024 * 1024


class Piece(NamedTuple):
    """A part of a blob, in order."""

    blob: str
    data: bytes


class Packer:
    """Yields the blobs of one plan, each once, as pieces for a file."""

    def __init__(self, values: Values, plan_path: str) -> None:
        self._values, self._plan_path = values, plan_path
        self._packed: set[str] = set()

    def pieces(self, znode: Znode) -> Iterator[Piece]:
        """The pieces of blobs that `znode` refers to and that are not packed yet. Write them before
        the znode.

        Raises StoredValueLost, StoreUnavailable, and PayloadUndecodable if there is no store.
        """
        for reference in references_in(znode.data):
            if reference.name in self._packed:
                continue
            self._packed.add(reference.name)
            try:
                view = memoryview(self._values.blob(self._plan_path, reference))
            except (StoredValueLost, PayloadUndecodable) as error:
                what = f"{self._plan_path} cannot be exported: {znode.path}"
                raise type(error)(f"{what}: {error}") from None
            for start in range(0, len(view), PIECE_BYTES):
                yield Piece(reference.name, bytes(view[start : start + PIECE_BYTES]))


class Complete:
    """Checks that a file has each blob before the znodes that refer to it."""

    def __init__(self, file: Path, store: Store | None) -> None:
        self._file, self._store = file, store
        self._found: set[str] = set()

    def see_piece(self, piece: Piece) -> None:
        """Raises ZkplanError if there is no store for the blob."""
        if self._store is None:
            raise ZkplanError(
                f"{self._file} holds large values, which need a store, but none is configured "
                "here: give one that the workers also reach (connect(store=...), --store or "
                "ZKPLAN_STORE)"
            )
        self._found.add(piece.blob)

    def see(self, znode: Znode) -> None:
        """Raises PayloadUndecodable if a blob of `znode` is missing."""
        missing = [name for name in names_in(znode.data) if name not in self._found]
        if missing:
            raise PayloadUndecodable(
                f"{self._file} cannot be imported: {znode.path} refers to {missing[0]}, which is "
                "not in the file"
            )


class Unpacker:
    """Writes the blobs of a file into the store before it yields the znodes that refer to them,
    with references to that store."""

    def __init__(self, store: Store | None, plan_path: str, uid: str, created_ms: int) -> None:
        """`uid` is in the plan's record, and `created_ms` is when its znode was created."""
        self._store = store
        self.folder = folder_name(plan_path, uid, created_ms)

    def znodes(self, items: Iterable[Znode | Piece]) -> Iterator[Znode]:
        """The znodes, in order. Raises StoreUnavailable."""
        store = ""
        for blob, group in groupby(items, lambda item: getattr(item, "blob", "")):
            if blob and self._store is not None:
                store = store or self._store.identity()
                self._store.write(self.folder, blob, (item.data for item in group))
                continue
            for item in group:
                if isinstance(item, Znode):
                    yield item._replace(data=moved(item.data, store)) if store else item

    def undo(self) -> None:
        """Delete the written blobs. Raises StoreUnavailable."""
        if self._store is not None:
            self._store.delete_folder(self.folder)
