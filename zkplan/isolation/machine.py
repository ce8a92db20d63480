"""What a task may use of this machine if nobody says: a share of its memory."""

from __future__ import annotations

from pathlib import Path

#: So much of the memory that is free at the start is shared out among the slots.
SHARE = 0.8
_UNLIMITED = 2**60


def fair_share(slots: int) -> int:
    """The bytes of memory for each of so many tasks at a time."""
    return max(64 * 1024 * 1024, int(SHARE * memory_available() / slots))


def memory_available(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """The bytes of memory that are free here, within the limits of this process's control group.

    A limit counts as a whole: what its group uses by now is mostly this worker's own.
    """
    found = [_UNLIMITED]
    for line in _text(proc / "meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            found.append(int(rest.split()[0]) * 1024)
    for line in _text(proc / "self/cgroup").splitlines():
        number, kinds, path = line.split(":", 2)
        if number == "0":  # version 2
            top, name = groups, "memory.max"
        elif "memory" in kinds.split(","):
            top, name = groups / "memory", "memory.limit_in_bytes"
        else:
            continue
        folder = Path(path.lstrip("/"))
        # In a container the path may be that outside of it; the limit is at the top then.
        for each in (folder, *folder.parents):
            limit = _text(top / each / name).strip()
            if limit.isdecimal():
                found.append(int(limit))
    return min(found)


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
