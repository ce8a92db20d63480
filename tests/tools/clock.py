"""Steps of the wall clock of one process, which is started under libfaketime.

Its monotonic clock stays real, as when an operator or an NTP daemon steps the time.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path

_LIBRARY = "libfaketimeMT.so.1"
_PLACES = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/opt/homebrew/lib")
_STAMP = "FAKETIME_TIMESTAMP_FILE"
_HERE = Path(__file__).parent / "preload"


@cache
def preloaded() -> Path | None:
    """The path of libfaketime, if it is installed."""
    machine = f"{platform.machine()}-linux-gnu"
    for place in _PLACES:
        for folder in (f"{place}/{machine}/faketime", f"{place}/faketime"):
            if (Path(folder) / _LIBRARY).exists():
                return Path(folder) / _LIBRARY
    return None


def environment(stamp: Path) -> Mapping[str, str]:
    """The environment of a process whose clock `step(stamp, …)` steps."""
    step(stamp, 0)
    return {
        "LD_PRELOAD": str(preloaded()),
        _STAMP: str(stamp),
        # A step is seen after a second. Without it each look at the clock reads the file, and a
        # server in Java is too slow to serve.
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        # It would shift the ends of waits, against a fault that the C library has no more: a
        # member of an ensemble took a minute to find its leader.
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        "PYTHONPATH": os.pathsep.join([str(_HERE), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }


def step(stamp: Path, seconds: float) -> None:
    """Set the offset of its clock."""
    draft = stamp.with_suffix(".new")
    draft.write_text(f"{seconds:+g}\n")
    draft.rename(stamp)


def stamp_of(pid: int) -> Path | None:
    """The file that steps the clock of that process; None where it has the real clock."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    for word in words:
        name, _, value = word.partition(b"=")
        if name == _STAMP.encode():
            return Path(os.fsdecode(value))
    return None
