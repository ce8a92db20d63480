"""Tasks that a task in a process of its own adds: as plain data on their way to its worker.

The process has no secret, so the worker signs their definitions. It checks their shape, and decodes
no value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..protocol.adding import NewTask
from ..protocol.layout import parse_lane
from ..serialization.codec import TASK, Codec, unsealed
from ..store.blob import Bytes
from .wire import Garbled


def to_plain(tasks: Sequence[NewTask]) -> tuple[list[Any], list[bytes]]:
    """What goes into the head of a packet, and its parts."""
    places = {task: place for place, task in enumerate(tasks)}
    plain = [
        [
            task.label,
            task.name,
            task.rank,
            task.keep,
            task.feeds,
            task.queue,
            task.not_before_ms,
            task.takes_failures,
            [dep if isinstance(dep, str) else places[dep] for dep in task.deps],
        ]
        for task in tasks
    ]
    return plain, [unsealed(task.record)[1] for task in tasks]


def from_plain(plain: Any, bodies: Sequence[Bytes], codec: Codec) -> list[NewTask]:
    """The tasks, signed. Raises Garbled for what `to_plain` did not make."""
    tasks: list[NewTask] = []
    try:
        for fields, body in zip(plain, bodies, strict=True):
            label, name, rank, keep, feeds, lane, at_ms, takes, deps = fields
            found: list[str | NewTask] = []
            for dep in deps:
                is_number = type(dep) is str and len(dep) == 10 and dep.isdecimal()
                found.append(dep if is_number else tasks[_place(dep)])
            fits = type(label) is type(name) is str and type(rank) is str and rank.isalnum()
            fits = fits and type(at_ms) is int and parse_lane(lane) is not None
            fits = fits and type(takes) is bool
            if not fits or keep not in (None, True, False) or type(feeds) is not bool:
                raise Garbled("a task that it adds has no right form")
            record = codec.seal(TASK, bytes(body))
            tasks.append(NewTask(label, rank, record, found, keep=keep, feeds=feeds, name=name))
            tasks[-1].queue, tasks[-1].not_before_ms, tasks[-1].takes_failures = lane, at_ms, takes
    except (TypeError, ValueError, IndexError):
        raise Garbled("the tasks that it adds have no right form") from None
    return tasks


def _place(dep: Any) -> int:
    if type(dep) is not int or dep < 0:
        raise ValueError(dep)
    return dep
