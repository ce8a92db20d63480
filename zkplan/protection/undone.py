"""What a retry takes back: the failure of a task, and the end of a plan.

Both stay authentic, so whoever has recorded one could put it back. A failure counts beside the dead
letter that was made with it, and an end as long as the plan was not retried since.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import PayloadRefused, PayloadUndecodable
from ..protocol.fields import as_whole_from_0, from_json
from ..protocol.formats import ENVELOPE
from ..protocol.records import Dead, is_starting, share_from_bytes
from ..protocol.requests import Create, Op, SetData
from ..protocol.unproven import require_proven
from .places import Place

_FAILURE = ENVELOPE + b"E"
#: What else may be wrong with an outcome.
PUT_BACK = ", or is a failure that was put back after a retry"


def is_failure(outcome: bytes) -> bool:
    return outcome.startswith(_FAILURE)


def letter_path(root: str, place: Place) -> str:
    """Of the dead letter that stands beside that outcome, if it is a failure."""
    plan, rest, _ = place
    return f"{root}/{plan}/dead/{rest.partition('/')[2]}"


def death_in(letter: bytes) -> int | None:
    """The number of the claim under which the task has died."""
    n = Dead.from_bytes(letter).n
    return n if n >= 0 else None


def death_of(ops: Sequence[Op], path: str) -> int | None:
    """The same, where this transaction makes the dead letter at `path`."""
    for op in ops:
        if type(op) in (Create, SetData) and op.path == path:
            return death_in(op.data)  # type: ignore[union-attr]
    return None


def of_death(place: Place, n: int) -> Place:
    plan, rest, kind = place
    return plan, f"{rest}@{n}", kind


def require_last_end(done: bytes, ready: bytes | None) -> None:
    """Raises PayloadRefused if `done` is the end of the plan before it was retried, as its state
    `ready` says, and where that says nothing. Raises as `require_proven`."""
    if ready is None:
        raise PayloadRefused("the state of its plan is gone, which says whether it was retried")
    require_proven(ready)
    if is_starting(ready):  # anybody can make the first version anew
        raise PayloadRefused("the state of its plan does not say yet whether it was retried")
    try:
        then = as_whole_from_0(from_json(done, "the end of a plan").get("retried")) or 0
    except PayloadUndecodable:
        then = 0
    if (share_from_bytes(ready).retried or 0) > then:
        raise PayloadRefused("it is an earlier end, and the plan was retried since")
