"""The limits that tasks and plans name, as authors give them."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidTask
from ..protocol.layout import OWN_LIMIT, QUEUE_NAMES, parse_queue
from ..protocol.limits import SIZE_MAX

#: The most limits that one task may name; with the limit of its plan there are eight.
LIMITS_MAX = 7


def as_names(limits: Any) -> Any:
    """What the options of a task hold; what is no list is refused by `check_limits`."""
    return tuple(limits) if type(limits) is list else limits


def check_limits(limits: Any, label: str) -> None:
    """Raises InvalidTask."""
    if not limits and limits == ():
        return
    if type(limits) is not tuple or len(limits) > LIMITS_MAX:
        raise InvalidTask(
            label, f"{label}: limits is a list of at most {LIMITS_MAX} names, not {limits!r:.60}"
        )
    for name in limits:
        if type(name) is not str or parse_queue(name) is None or name == OWN_LIMIT:
            raise InvalidTask(
                label,
                f"{label}: limits: {name!r:.60} is no name of a limit: {QUEUE_NAMES}, and is not "
                "`plan`",
            )


def check_max_running(size: int | None) -> None:
    """Raises InvalidTask."""
    if size is not None and not (type(size) is int and 1 <= size <= SIZE_MAX):
        raise InvalidTask("", f"max_running is 1 to {SIZE_MAX}, not {size!r}")
