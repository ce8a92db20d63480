"""The state of a process in /proc: stopped by a signal, or ended."""

from __future__ import annotations

from pathlib import Path


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped it, and none has continued it."""
    return _state(pid) == "T"


def is_gone(pid: int) -> bool:
    """Whether it has ended, reaped or not."""
    return _state(pid) in ("", "Z")


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
