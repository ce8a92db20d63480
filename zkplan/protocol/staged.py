"""Definitions of added tasks as bytes: staged below the task that adds them, until they count."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from ..errors import PayloadUndecodable
from .adding import NewTask
from .fields import as_queue, as_rank, as_text, as_whole_from_0, from_json, to_json
from .layout import RANK_MIDDLE
from .shared import GROUP_BYTES_MAX

_LENGTHS = struct.Struct(">IIII")


def chunks_of(tasks: Sequence[NewTask]) -> Iterator[bytes]:
    """The tasks in order, as many in each chunk as a grouped transaction carries, or one."""
    places = {task: place for place, task in enumerate(tasks)}
    chunk = bytearray()
    for task in tasks:
        packed = _packed(task, places)
        if chunk and len(chunk) + len(packed) > GROUP_BYTES_MAX:
            yield bytes(chunk)
            chunk.clear()
        chunk += packed
    yield bytes(chunk)


def tasks_of(chunks: Sequence[bytes]) -> list[NewTask]:
    """The tasks of all chunks, in order. Raises PayloadUndecodable for damaged ones."""
    tasks: list[NewTask] = []
    try:
        for chunk in chunks:
            at = 0
            while at < len(chunk):
                at = _unpack(chunk, at, tasks)
    except (IndexError, struct.error) as error:
        raise PayloadUndecodable(f"staged definitions of tasks are damaged: {error}") from None
    return tasks


def _packed(task: NewTask, places: dict[NewTask, int]) -> bytes:
    # A dependency takes four bytes, as a source does (`with_sources`): so a definition that fits a
    # transaction as a task fits one as a chunk. Those below 0 are of the set.
    deps = [int(dep) if isinstance(dep, str) else ~places[dep] for dep in task.deps]
    head = to_json(
        {
            "label": task.label,
            "name": task.name,
            "rank": task.rank,
            "queue": task.queue,
            "not_before_ms": task.not_before_ms,
            "fails": task.takes_failures,
        }
    )
    lengths = _LENGTHS.pack(len(head), len(deps), len(task.record), len(task.gate))
    return b"".join((lengths, head, struct.pack(f">{len(deps)}i", *deps), task.record, task.gate))


def _unpack(chunk: bytes, at: int, tasks: list[NewTask]) -> int:
    """Append the task that begins there. Returns where the next one begins."""
    lengths: tuple[int, int, int, int] = _LENGTHS.unpack_from(chunk, at)
    head_size, dep_count, record_size, gate_size = lengths
    at += _LENGTHS.size
    head = from_json(chunk[at : at + head_size], "the definition of an added task")
    at += head_size
    found = struct.unpack_from(f">{dep_count}i", chunk, at)
    at += 4 * dep_count
    record, gate = chunk[at : at + record_size], chunk[at + record_size :][:gate_size]
    task = NewTask(
        as_text(head.get("label")),
        as_rank(head.get("rank")) or f"{RANK_MIDDLE}",
        record,
        [f"{number:010d}" if number >= 0 else tasks[~number] for number in found],
        queue=as_queue(head.get("queue")),
        not_before_ms=as_whole_from_0(head.get("not_before_ms")) or 0,
        gate=gate,
        takes_failures=head.get("fails") is True,
        name=as_text(head.get("name")),
    )
    tasks.append(task)
    return at + record_size + gate_size
