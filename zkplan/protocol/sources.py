"""Whose outcome each argument of a task is: its definition says so, and so does the argument.

Who runs a task compares the two. So an edge that somebody has changed delivers a result to nobody,
and edges need no proof of their own.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from .records import SOURCE_BYTES
from .unproven import Unproven, require_proven

#: What stands before the outcome in an argument: the ten digits of the task that has it.
NUMBER_BYTES = 10


def with_sources(record: bytes, numbers: Sequence[str]) -> bytes:
    """The data of a task: its definition, and for each position the task whose outcome goes there.

    A gate names itself, for it has no dependency: who opens it gives it its argument.
    """
    return record + struct.pack(f">{len(numbers)}I", *map(int, numbers)) if numbers else record


def argument_of(number: str, outcome: bytes) -> bytes:
    """The data of an argument: the outcome of the task of that number."""
    return number.encode() + outcome


def outcome_in(argument: bytes) -> bytes:
    """The outcome that an argument holds. Raises as `require_proven`."""
    require_proven(argument)
    return argument[NUMBER_BYTES:]


def misplaced(record: bytes, arguments: Sequence[bytes]) -> str:
    """What is wrong with the arguments of a task, which are all there; empty if nothing is.

    What was refused when it was read is passed over: it says so itself.
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
