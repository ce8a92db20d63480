"""The fields of records: JSON to values that may become part of a path, a sum or a date."""

from __future__ import annotations

import json
import math
from typing import Any

from ..errors import PayloadUndecodable
from . import formats
from .layout import DEFAULT_QUEUE, parse_lane, parse_queue
from .unproven import SEALED, require_proven

#: Larger than any number that an option may have, in any unit.
NUMBER_MAX = 1e12
#: What stays for ever, where a number of seconds stands otherwise.
FOREVER = "forever"


def to_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def from_json(data: bytes, what: str) -> dict[str, Any]:
    """Parse the JSON object in `data`. Raises PayloadUndecodable, which names `what`, for other
    data."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        require_proven(data)
        if data.startswith(formats.SEALED):
            raise PayloadUndecodable(f"{what}: {SEALED}") from None
        formats.require_magic(data, formats.SEALED)
        raise PayloadUndecodable(f"{what} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise PayloadUndecodable(f"{what} is not a JSON object")
    return value


def as_text(value: Any, default: str = "") -> str:
    """A text that any file takes: JSON can hold half a character (a lone surrogate), which none
    takes."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else default


def as_rank(value: Any) -> str:
    """The rank at the start of `value`, or empty. It becomes part of a path, so it is checked."""
    rank = as_text(value)[:4]
    return rank if len(rank) == 4 and rank.isascii() and rank.isdecimal() else ""


def as_queue(value: Any) -> str:
    """A lane: it becomes part of a path, so anything else counts as the default queue."""
    return parse_lane(as_text(value)) or DEFAULT_QUEUE


def as_queues(value: Any) -> tuple[str, ...]:
    named = value if isinstance(value, list) else ()
    return tuple(filter(parse_queue, map(as_text, named))) or (DEFAULT_QUEUE,)


def as_names(value: Any) -> tuple[str, ...]:
    """The texts of a list; what else stands there is left out."""
    named = value if isinstance(value, list) else ()
    return tuple(as_text(each) for each in named if isinstance(each, str))


def as_whole(value: Any, what: str) -> int:
    if not isinstance(value, int) or not -(2**31) <= value < 2**31:
        raise PayloadUndecodable(f"{what} has no whole number where one belongs")
    return value


def as_seconds(value: Any, what: str) -> float:
    # Compared before it is converted, because float() refuses whole numbers beyond its range; NaN
    # lies within no bounds. They are the years that a date can have, wherever one is shown.
    if not isinstance(value, int | float) or not -6e10 < value < 2.5e11:
        raise PayloadUndecodable(f"{what} has no time where one belongs")
    return float(value)


def as_retention(value: Any) -> float | None:
    """None for anything else than seconds: then the plan stays, which does no harm."""
    known = type(value) in (int, float) and 0 <= value < NUMBER_MAX
    return float(value) if known else None


def as_lasting(value: Any) -> float | None:
    """Seconds, infinite for "forever"; None for anything else."""
    return math.inf if value == FOREVER else as_retention(value)


def lasting_to_json(seconds: float) -> float | str:
    """The same as JSON, which has no number that is infinite."""
    return FOREVER if seconds == math.inf else seconds


def as_whole_from_0(value: Any) -> int | None:
    """A whole number from 0; None for anything else."""
    return value if type(value) is int and 0 <= value < NUMBER_MAX**2 else None


def as_moment(value: Any) -> float | None:
    """Wall-clock seconds, or None for anything else: a damaged bound binds nobody."""
    known = type(value) in (int, float) and 0 <= value < NUMBER_MAX
    return float(value) if known else None
