"""Objects that live in one process: a copy elsewhere would never hear of the original.

A future, an event or a queue would travel, since dill makes a new lock for each lock in it. A task
that waits for such a copy waits for ever. So they are refused, as pickle does it.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Any, cast

_FUTURE = "pass its result, or the zkplan task that makes it"
_RUNS = "pass what it works on"
_SHARED = "tasks share no memory: pass a value, depend on a task, or wait for a znode (zkplan.when)"
#: By name, so that no module is imported for it.
_LIVE = {
    "concurrent.futures._base:Future": _FUTURE,
    "_asyncio:Future": _FUTURE,
    "asyncio.futures:Future": _FUTURE,
    "threading:Thread": _RUNS,
    "subprocess:Popen": _RUNS,
    "queue:Queue": _SHARED,
    "_queue:SimpleQueue": _SHARED,
    "asyncio.queues:Queue": _SHARED,
    **{
        f"{module}:{name}": _SHARED
        for module in ("threading", "asyncio.locks")
        for name in ("Event", "Condition", "Semaphore", "Barrier")
    },
}


def refuse_live(obj: Any) -> None:
    """Raises TypeError for such an object, which says what to pass instead."""
    instead = _instead_of(cast("Hashable", type(obj)))
    if instead:
        kind = type(obj)
        raise TypeError(
            f"a copy of a {kind.__module__}.{kind.__qualname__} would never change, as it lives in "
            f"one process: {instead}. A class that holds one can leave it out in __getstate__"
        )


@lru_cache(maxsize=1024)  # asked for each object
def _instead_of(kind: Any) -> str:
    """What to pass instead; empty if objects of that class may travel."""
    for each in kind.__mro__:
        if each is not object and not {"__reduce__", "__reduce_ex__", "__getstate__"}.isdisjoint(
            vars(each)
        ):
            return ""  # it says itself what travels
        instead = _LIVE.get(f"{each.__module__}:{each.__qualname__}")
        if instead:
            return instead
    return ""
