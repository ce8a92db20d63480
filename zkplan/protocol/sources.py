"""Whose outcome each argument of a task is: its definition says so, and so does the argument.

Who runs a task compares the two. So an edge that somebody has turned leads a result to a task that
refuses it, and edges need no proof of their own.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from .records import SOURCE_BYTES
from .unproven import Unproven, require_proven

NUMBER_BYTES = 10
#: What stands before an envelope in an argument: the ten digits of a task, and whether it ended
#: with that outcome. It may get another one where it did not: it is dead, and may be retried.
HEAD_BYTES = NUMBER_BYTES + 1
ENDED, NOT_ENDED = b"=", b"-"


def with_sources(record: bytes, numbers: Sequence[str]) -> bytes:
    """The data of a task: its definition, and for each position the task whose outcome goes there.

    A gate names itself, for it has no dependency: who opens it gives it its argument.
    """
    return record + struct.pack(f">{len(numbers)}I", *map(int, numbers)) if numbers else record


def argument_of(number: str, outcome: bytes, *, ended: bool = True) -> bytes:
    """The data of an argument: an outcome of the task of that number. Raises as `require_proven`.

    `ended`: the task ends with it. A gate has not ended when it is opened.
    """
    require_proven(outcome)  # joined to the number it would be plain bytes
    return number.encode() + (ENDED if ended else NOT_ENDED) + outcome


def outcome_in(argument: bytes) -> bytes:
    """The outcome that an argument holds. Raises as `require_proven`."""
    require_proven(argument)
    return argument[HEAD_BYTES:]


def sources_of(record: bytes, positions: int) -> list[str]:
    """The task whose outcome goes to each position, as the data of a task with that many say; empty
    where they are too short."""
    start = len(record) - SOURCE_BYTES * positions
    if start < 0:
        return []
    return [f"{n:010d}" for n in struct.unpack_from(f">{positions}I", record, start)]


def source_in(argument: bytes) -> str:
    """The number of the task whose outcome an argument is. Raises as `require_proven`."""
    require_proven(argument)
    return argument[:NUMBER_BYTES].decode(errors="backslashreplace")


def misplaced(record: bytes, arguments: Sequence[bytes]) -> str:
    """Which of the arguments comes from another task than the definition says; empty if none does.

    There have to be as many as the definition has positions. What was refused when it was read is
    passed over: it says so itself.
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
