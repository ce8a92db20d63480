"""What several tasks of a plan share lies in the plan once: large functions by value, constants.

Its znodes are named by the digest of the whole. So authors who write the same bytes at the same
time write the same znodes, and a late copy of such a transaction changes nothing. They are written
before the tasks that refer to them (S10), and deleted when the plan has ended without a failed
task, or with the plan.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..layout import SHARED, shared_part
from ..requests import Check, Create, Delete, Multi, ReadData, Reason, Refused, Step
from ..transactions import GROUP_OPS_MAX, rejected

#: The most bytes in one znode: half of what a request holds, as keys and other operations add some.
PART_BYTES = 512 * 1024


def _parts(length: int) -> range:
    return range(max(1, -(-length // PART_BYTES)))


def write(plan_path: str, digest: str, data: bytes) -> Step[None]:
    """Write `data`, whose digest that is. Writes nothing to a plan that takes no tasks any more:
    the add that follows is refused, and says why. Raises TransactionRejected."""
    for part in _parts(len(data)):
        path = shared_part(plan_path, digest, part)
        chunk = data[part * PART_BYTES : (part + 1) * PART_BYTES]
        answer = yield Multi([Check(f"{plan_path}/add-count"), Create(path, chunk)])
        if isinstance(answer, Refused):
            if answer.reason is Reason.NO_NODE:
                return
            if answer.reason is not Reason.NODE_EXISTS:
                raise rejected(f"writing what tasks of {plan_path} share", answer)


def read(plan_path: str, digest: str, length: int) -> Step[bytes | None]:
    """What was written with that digest and length; None if a part of it is missing."""
    parts: list[bytes] = []
    for part in _parts(length):
        # One by one: a server keeps the whole answer to a batch in memory.
        node = yield ReadData(shared_part(plan_path, digest, part))
        if node is None:
            return None
        parts.append(node.data)
    return b"".join(parts)


def drop(plan_path: str, names: Sequence[str] | None) -> Step[None]:
    """Delete what the tasks of a plan have shared. `names` are the children of its `add-ids`, read
    before the plan ended: nothing is shared after that."""
    doomed = [f"{plan_path}/add-ids/{name}" for name in names or () if name.startswith(SHARED)]
    for start in range(0, len(doomed), GROUP_OPS_MAX):
        ops = [Delete(path) for path in doomed[start : start + GROUP_OPS_MAX]]
        if isinstance((yield Multi(ops)), Refused):
            for op in ops:  # the plan is being removed
                yield Multi([op])
