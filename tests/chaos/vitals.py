"""What a process takes: memory, threads, sockets, descriptors; read from /proc."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import NamedTuple


class Vitals(NamedTuple):
    """One measurement at the monotonic time `at`; zeros where the process has ended."""

    name: str
    pid: int
    at: float
    memory_bytes: int = 0
    threads: int = 0
    sockets: int = 0
    descriptors: int = 0


def vitals_of(name: str, pid: int, at: float) -> Vitals:
    """Measure it now."""
    folder = Path("/proc") / str(pid)
    try:
        pages = int((folder / "statm").read_text().split()[1])
        threads = len(list((folder / "task").iterdir()))
        targets = [_target(link) for link in (folder / "fd").iterdir()]
    except OSError:
        return Vitals(name, pid, at)
    sockets = sum(target.startswith("socket:") for target in targets)
    return Vitals(name, pid, at, pages * resource.getpagesize(), threads, sockets, len(targets))


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return ""  # closed since the folder was listed
