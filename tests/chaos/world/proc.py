"""What the system says of a process: whether it stands still, whether it is gone."""

from __future__ import annotations

from pathlib import Path


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped it, and none has let it go on."""
    return _state(pid) == "T"


def is_gone(pid: int) -> bool:
    """Whether it has ended; one that nobody has reaped yet has."""
    return _state(pid) in ("", "Z")


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
