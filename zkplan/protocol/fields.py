"""The fields of records: checked JSON values, and the stand-in for data whose seal is wrong.

With keys, `zkplan.values` opens all data before a step sees it. Data that it cannot open becomes an
`Unproven`: bytes that no parser accepts, with the reason. So a step, which knows no keys, finds a
damaged record and uses nothing from it.
"""

from __future__ import annotations

import json
import math
from typing import Any

from ..errors import PayloadRefused, PayloadUndecodable
from . import formats
from .layout import DEFAULT_QUEUE, parse_lane, parse_queue

#: The reason for a reader that has no key.
NO_SECRET = "it is sealed with a secret, but none is configured here: set secret-files"


class Unproven(bytes):
    """Takes the place of data that was refused. `error` says what was refused, where, and why."""

    error: PayloadUndecodable

    def __new__(cls, error: PayloadUndecodable) -> Unproven:
        # Not JSON, digits or an envelope. Not empty either: empty data has a meaning.
        made = super().__new__(cls, b"\0 refused")
        made.error = error
        return made

    @property
    def is_forged(self) -> bool:
        """Whether no key has sealed the data for its place. If False, its key is unknown here."""
        return isinstance(self.error, PayloadRefused)


def require_proven(data: bytes) -> None:
    """Raises PayloadRefused, or PayloadUndecodable, if `data` was refused when it was read."""
    if isinstance(data, Unproven):
        raise data.error


def require_known_key(path: str, data: bytes) -> None:
    """As `require_opened`, but accepts forged data: it does not show which keys the readers of the
    znodes beside it have."""
    if not (isinstance(data, Unproven) and data.is_forged):
        require_opened(path, data)


def require_opened(path: str, data: bytes) -> None:
    """Check data before it is written again. Raises PayloadUndecodable if the data cannot be read
    here, because it is sealed with another key or no key is known."""
    require_proven(data)
    if data.startswith(formats.SEALED):
        raise PayloadUndecodable(f"{path} is not used: {NO_SECRET}")


# ---- The fields of records: JSON to values that may become part of a path, a sum or a date.


#: Larger than any number that an option may have, in any unit.
NUMBER_MAX = 1e12
#: Written instead of an infinite number of seconds.
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
            raise PayloadUndecodable(f"{what}: {NO_SECRET}") from None
        formats.require_magic(data, formats.SEALED)
        raise PayloadUndecodable(f"{what} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise PayloadUndecodable(f"{what} is not a JSON object")
    return value


def as_text(value: Any, default: str = "") -> str:
    """A text that can be encoded: JSON can hold half a character (a lone surrogate)."""
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
    """The texts of a list; other items are left out."""
    named = value if isinstance(value, list) else ()
    return tuple(as_text(each) for each in named if isinstance(each, str))


def as_whole(value: Any, what: str) -> int:
    if not isinstance(value, int) or not -(2**31) <= value < 2**31:
        raise PayloadUndecodable(f"{what} has another value in place of a whole number")
    return value


def as_seconds(value: Any, what: str) -> float:
    # Compared first, because float() refuses whole numbers beyond its range. NaN lies within no
    # bounds. The bounds are the years that a date can have.
    if not isinstance(value, int | float) or not -6e10 < value < 2.5e11:
        raise PayloadUndecodable(f"{what} has another value in place of a time")
    return float(value)


def as_retention(value: Any) -> float | None:
    """Seconds; None for anything else: then the plan stays, which does no harm."""
    known = type(value) in (int, float) and 0 <= value < NUMBER_MAX
    return float(value) if known else None


def as_lasting(value: Any) -> float | None:
    """Seconds, infinite for "forever"; None for anything else."""
    return math.inf if value == FOREVER else as_retention(value)


def lasting_to_json(seconds: float) -> float | str:
    """`seconds` as a JSON value: JSON has no infinite number."""
    return FOREVER if seconds == math.inf else seconds


def as_whole_from_0(value: Any) -> int | None:
    """A whole number from 0; None for anything else."""
    return value if type(value) is int and 0 <= value < NUMBER_MAX**2 else None


def as_moment(value: Any) -> float | None:
    """Wall-clock seconds; None for anything else: a damaged bound has no effect."""
    known = type(value) in (int, float) and 0 <= value < NUMBER_MAX
    return float(value) if known else None
