"""The garbage collector: it looks less often, and not at what the start has made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: More new objects than that, and the youngest are looked at. Python's own number is 700.
_YOUNGEST_MAX = 10_000
#: The same for a command that reads much and ends soon.
_OF_A_READER = 50_000


@contextmanager
def spared_imports() -> Iterator[None]:
    """Around the imports of a command: what they make is looked at neither now nor later. To look
    for garbage in it took an eighth of their time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def spare_what_stays() -> None:
    """Call it once all modules are imported. Classes and functions stay until the process ends: to
    look at them again and again took a tenth of a worker's time where tasks are small."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNGEST_MAX, *gc.get_threshold()[1:])


def spare_a_reader() -> None:
    """For a command that decodes much, keeps little, and ends: to look at what it decodes took as
    long as decoding it."""
    gc.set_threshold(_OF_A_READER, *gc.get_threshold()[1:])
