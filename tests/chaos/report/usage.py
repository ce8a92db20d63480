"""Memory, threads, sockets and descriptors of long-lived processes, and whether they grow."""

from __future__ import annotations

import resource
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median_high
from typing import NamedTuple

#: What was noted longer ago belongs to another time.
_NOTED_S = 30.0
#: After EARLY_S a process has its caches and threads. WINDOW_S from there on are compared with
#: WINDOW_S at the end, as single moments depend on the work that is under way.
EARLY_S, WINDOW_S = 300.0, 300.0
#: How many times as much may be used at the end. Runs of up to an hour have shown 1.003 of blocks.
MOST = {"memory": 1.10, "blocks": 1.01, "threads": 1.0, "sockets": 1.0, "descriptors": 1.0}


class Usage(NamedTuple):
    """One measurement at the monotonic time `at`; nothing is `used` once the process has ended.

    `memory` is the resident size in bytes. `blocks` are the allocated blocks after a collection, as
    the process noted them last (traffic/memory.py); 0 where it noted none of late.
    """

    name: str
    pid: int
    at: float
    used: dict[str, int]


def usage_of(name: str, pid: int, at: float, noted: tuple[float, int]) -> Usage:
    """Measure a process now; `noted` has when it last noted its blocks, and how many."""
    folder = Path("/proc") / str(pid)
    try:
        pages = int((folder / "statm").read_text().split()[1])
        threads = len(list((folder / "task").iterdir()))
        targets = [_target(link) for link in (folder / "fd").iterdir()]
    except OSError:
        return Usage(name, pid, at, {})
    sockets = sum(target.startswith("socket:") for target in targets)
    blocks = noted[1] if at - noted[0] < _NOTED_S else 0
    numbers = (pages * resource.getpagesize(), blocks, threads, sockets, len(targets))
    return Usage(name, pid, at, dict(zip(MOST, numbers, strict=True)))


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return ""  # closed since the folder was listed


def by_process(usage: Iterable[Usage]) -> dict[str, list[Usage]]:
    """The measurements of each process in order, without those after its end."""
    found: defaultdict[str, list[Usage]] = defaultdict(list)
    for each in usage:
        if each.used:
            found[each.name].append(each)
    return dict(sorted(found.items()))


def early_and_late(series: Sequence[Usage], began: float) -> dict[str, dict[str, int]]:
    """What a process used early and late; empty where the run is too short.

    Medians, as a peak or a new connection is no leak; of blocks the least.
    """
    early, late = began + EARLY_S, series[-1].at - WINDOW_S
    if late < early + WINDOW_S:
        return {}
    return {"early": _used(series, early), "late": _used(series, late)}


def _used(series: Sequence[Usage], begin: float) -> dict[str, int]:
    samples = [each.used for each in series if begin <= each.at <= begin + WINDOW_S]
    if not samples:
        return {}
    found = {what: median_high(used[what] for used in samples) for what in MOST}
    noted = [used["blocks"] for used in samples if used["blocks"]]
    return found | {"blocks": min(noted, default=0)}


def growth(usage: Iterable[Usage], began: float) -> Iterator[str]:
    """Violations: long-lived processes that ended, or use more at the end than early."""
    for name, series in by_process(usage).items():
        pids = list(dict.fromkeys(each.pid for each in series))
        if len(pids) > 1:
            yield f"{name} ended, which no fault does to it: its processes were {pids}"
            continue
        found = early_and_late(series, began)
        early, late = found.get("early", {}), found.get("late", {})
        if early and not (early["blocks"] and late["blocks"]):
            yield f"{name} did not note its blocks"
        for what, then in early.items():
            if late[what] > then * MOST[what]:
                yield f"{name} uses ever more {what}: {then} early, {late[what]} at the end"
