"""What several tasks of a plan share lies in the plan once: large functions by value, constants.

It is written before the tasks that refer to it (S10), under a random name, so that a name says
nothing of what is shared. It is deleted when the plan has ended without a failed task, or with the
plan. A late copy of a transaction that wrote it changes nothing: the name is never used again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..fields import require_proven
from ..layout import SHARED, shared_part
from ..requests import Check, Create, Delete, Multi, ReadData, Reason, Refused, Step
from ..transactions import GROUP_OPS_MAX, rejected

#: The most bytes in one znode: half of what a request holds, as keys and other operations add some.
PART_BYTES = 512 * 1024


def _parts(length: int) -> range:
    return range(max(1, -(-length // PART_BYTES)))


def write(plan_path: str, name: str, data: bytes, explain: Callable[[], Step[None]]) -> Step[None]:
    """Write `data` under a name that only this call uses. It is in the plan when this returns.

    `explain` raises the error that says why the plan takes no tasks, or returns if it takes them by
    now. Raises TransactionRejected, and what `explain` raises.
    """
    for part in _parts(len(data)):
        path = shared_part(plan_path, name, part)
        chunk = data[part * PART_BYTES : (part + 1) * PART_BYTES]
        while True:
            answer = yield Multi([Check(f"{plan_path}/add-count"), Create(path, chunk)])
            if not isinstance(answer, Refused) or answer.reason is Reason.NODE_EXISTS:
                break  # an earlier copy was applied
            if answer.reason is not Reason.NO_NODE:
                raise rejected(f"writing what tasks of {plan_path} share", answer)
            yield from explain()


def read(plan_path: str, name: str, length: int) -> Step[bytes | None]:
    """What was written under that name, with its length; None if a part of it is missing.

    Raises PayloadRefused for what no key of this client has sealed for its place, and
    PayloadUndecodable for a key that this client lacks.
    """
    parts: list[bytes] = []
    for part in _parts(length):
        # One by one: a server keeps the whole answer to a batch in memory.
        node = yield ReadData(shared_part(plan_path, name, part))
        if node is None:
            return None
        require_proven(node.data)
        parts.append(node.data)
    return b"".join(parts)


def drop(plan_path: str, names: Sequence[str] | None) -> Step[None]:
    """Delete what the tasks of an ended plan have shared. `names` are the children of its `add-ids`
    before its end. What an author wrote after that listing stays until the plan is removed."""
    doomed = [f"{plan_path}/add-ids/{name}" for name in names or () if name.startswith(SHARED)]
    for start in range(0, len(doomed), GROUP_OPS_MAX):
        ops = [Delete(path) for path in doomed[start : start + GROUP_OPS_MAX]]
        if isinstance((yield Multi(ops)), Refused):
            for op in ops:  # the plan is being removed
                yield Multi([op])
