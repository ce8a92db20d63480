"""What a process takes: memory, threads, sockets, descriptors; and whether it takes ever more."""

from __future__ import annotations

import json
import resource
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median_high
from typing import NamedTuple

#: Some half a minute of what a busy worker notes.
_TAIL_BYTES = 512 * 1024
#: What a process needs, caches and threads, it has after EARLY_S. From there on this much time is
#: compared with as much at the end, alike: single moments tell of the work that is just under way.
EARLY_S, WINDOW_S = 300.0, 300.0
#: What may be more at the end. Of blocks an hour and half an hour have shown 0.2 to 0.3 %. Of the
#: resident size, when it still kept what peaks had taken, hours have shown 6 and 25 %.
BLOCKS_MORE, MEMORY_MORE = 0.01, 0.10


class Vitals(NamedTuple):
    """One measurement at the monotonic time `at`; zeros where the process has ended.

    `memory_bytes` is the resident size; who notes its blocks gives back what the C library keeps of
    a peak, so of veterans it shows what they hold, and what lies between that. `blocks` are those
    that its interpreter had in use when its garbage had been collected, by its own last account: 0
    where it gave none of late.
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
    """What it noted last. Never an older note: that would be one of another stretch."""
    if not journal.exists():
        return 0
    with journal.open("rb") as file:
        file.seek(max(0, journal.stat().st_size - _TAIL_BYTES))
        # The first one may be half a line, the last one may be just being written.
        lines = file.read().split(b"\n")[1:-1]
    noted = [line for line in lines if b'"blocks": ' in line]
    return int(json.loads(noted[-1])["blocks"]) if noted else 0


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return ""  # closed since the folder was listed


def by_process(vitals: Iterable[Vitals]) -> dict[str, list[Vitals]]:
    """What was measured of each, in the order of time; without the moments after its end."""
    found: defaultdict[str, list[Vitals]] = defaultdict(list)
    for each in vitals:
        if each.memory_bytes:
            found[each.name].append(each)
    return dict(sorted(found.items()))


def stretches(series: Sequence[Vitals], began: float) -> dict[str, Vitals]:
    """What a process took early, half-way and late; empty where the run is too short for that.

    Medians: a connection that is made anew has a socket more or less for a moment, and a peak is no
    leak. Of blocks the least, for what is under way takes more. What came early and half-way, and
    not after that, is a cache that is full.
    """
    early, late = began + EARLY_S, series[-1].at - WINDOW_S
    if late < early + WINDOW_S:
        return {}
    begins = {"early": early, "half-way": (early + late) / 2, "late": late}
    found = {
        when: [each for each in series if begin <= each.at <= begin + WINDOW_S]
        for when, begin in begins.items()
    }
    return {when: _summed(samples) for when, samples in found.items() if samples}


def growth(vitals: Iterable[Vitals], began: float) -> Iterator[str]:
    """Violations: what those that no fault ends hold more at the end than after some minutes."""
    for name, series in by_process(vitals).items():
        pids = list(dict.fromkeys(each.pid for each in series))
        if len(pids) > 1:
            yield f"{name} ended, which no fault does to it: its processes were {pids}"
            continue
        found = stretches(series, began)
        if "early" in found:
            yield from _more(found["early"], found["late"])


def _more(early: Vitals, late: Vitals) -> Iterator[str]:
    if not (early.blocks and late.blocks):
        yield f"{late.name} did not note what blocks it holds"
    for what, most in (
        ("threads", early.threads),
        ("sockets", early.sockets),
        ("descriptors", early.descriptors),
        ("blocks", early.blocks * (1 + BLOCKS_MORE)),
        ("memory_bytes", early.memory_bytes * (1 + MEMORY_MORE)),
    ):
        now, then = getattr(late, what), getattr(early, what)
        if now > most:
            yield f"{late.name} holds ever more {what}: {then} after some minutes, {now} at the end"


def _summed(samples: Sequence[Vitals]) -> Vitals:
    return samples[-1]._replace(
        memory_bytes=median_high(each.memory_bytes for each in samples),
        threads=median_high(each.threads for each in samples),
        sockets=median_high(each.sockets for each in samples),
        descriptors=median_high(each.descriptors for each in samples),
        blocks=min((each.blocks for each in samples if each.blocks), default=0),
    )
