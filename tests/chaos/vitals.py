"""What a process takes: memory, threads, sockets, descriptors; from /proc and its own journal."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import NamedTuple

#: Some ten seconds of what a busy worker notes.
_TAIL_BYTES = 128 * 1024


class Vitals(NamedTuple):
    """One measurement at the monotonic time `at`; zeros where the process has ended.

    `memory_bytes` is the resident size, which keeps what a peak has taken. `blocks` are those that
    its interpreter had in use without garbage, by its own account: the fewest of late. They show
    what it holds, and with that a leak.
    """

    name: str
    pid: int
    at: float
    memory_bytes: int = 0
    threads: int = 0
    sockets: int = 0
    descriptors: int = 0
    blocks: int = 0


def vitals_of(name: str, pid: int, at: float, journal: Path) -> Vitals:
    """Measure it now; it notes its blocks in `journal`."""
    folder = Path("/proc") / str(pid)
    try:
        pages = int((folder / "statm").read_text().split()[1])
        threads = len(list((folder / "task").iterdir()))
        targets = [_target(link) for link in (folder / "fd").iterdir()]
    except OSError:
        return Vitals(name, pid, at)
    sockets = sum(target.startswith("socket:") for target in targets)
    memory = pages * resource.getpagesize()
    return Vitals(name, pid, at, memory, threads, sockets, len(targets), _blocks(journal))


def _blocks(journal: Path) -> int:
    """The fewest that it has noted in its last lines: what it holds when it does least."""
    if not journal.exists():
        return 0
    with journal.open("rb") as file:
        file.seek(max(0, journal.stat().st_size - _TAIL_BYTES))
        # The first one may be half a line, the last one may be just being written.
        lines = file.read().split(b"\n")[1:-1]
    return min((noted for line in lines if (noted := json.loads(line).get("blocks"))), default=0)


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return ""  # closed since the folder was listed
