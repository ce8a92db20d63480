"""The picture of `zkplan top`: an overview as lines of text, and a live view that redraws them."""

from __future__ import annotations

import logging
import os
import select
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group
from rich.control import Control
from rich.text import Text

from ..basics.text import count, duration, one_line
from ..errors import ServerRolledBack, ZooKeeperUnavailable
from ..transport import Transport
from ..views.overview import Observer, Overview
from ..views.root_look import PlanNow

#: The smallest picture that is drawn; a smaller terminal shows a part of it.
WIDTH_MIN, HEIGHT_MIN = 60, 12
#: From this width on, plans have the column DONE.
WIDE = 100
_PLAIN, _HEAD, _ALERT = "", "bold reverse", "bold red"


class Line(NamedTuple):
    """One line of the picture, and its style in rich."""

    text: str
    style: str = _PLAIN


class _Section(NamedTuple):
    """A part of the picture; it shows as many rows as there is room.

    `columns` are the titles and their widths. A negative width aligns numbers on the right; the
    column of width 0 takes the remaining room. `total` also counts rows that were not read.
    """

    columns: dict[str, int]
    rows: Sequence[Sequence[str]]
    total: int
    style: str = _PLAIN


def picture(seen: Overview, place: str, notice: str, width: int, height: int) -> list[Line]:
    """Draw the lines for a terminal. `place` names the root. `notice` says what is wrong with the
    picture, such as a server that is away."""
    width, height = max(width, WIDTH_MIN), max(height, HEIGHT_MIN)
    at = datetime.fromtimestamp(seen.when).strftime("%Y-%m-%d %H:%M:%S")
    lines = [Line(_fit(f"zkplan top  {at}  {place}", width), "bold")]
    lines.append(Line(_fit(notice or _totals(seen), width), _ALERT if notice else _PLAIN))
    sections = [each for each in _sections(seen, width >= WIDE) if each.rows]
    rooms = _shared([len(each.rows) for each in sections], height - len(lines) - len(sections))
    for section, room in zip(sections, rooms, strict=True):
        lines += _drawn(section, room, width)
    if not sections:
        lines.append(Line("no active plan, and no worker"))
    return lines[:height]


def _totals(seen: Overview) -> str:
    running = sum(worker.running for worker in seen.workers)
    return " | ".join(
        [
            f"{count(len(seen.plans), 'active plan')} of {len(seen.plans) + seen.others:,}",
            count(len(seen.workers), "worker"),
            f"{running:,} running, {seen.held - running:,} ahead",
            "rate: later" if seen.rate is None else f"{_rate(seen.rate)} tasks/s",
        ]
    )


_LATE = {"SINCE": -8, "LATE": 0}
_PLANS = {
    "PLAN": -6, "NAME": 0, "STATE": 8, "DONE": -5, "LEFT": -7, "RUN": -5, "AHEAD": -5,
    "RUNNABLE": -8, "DEAD": -5, "RATE/S": -7, "ENDS IN": -8,
}  # fmt: skip
_TASKS = {"FOR": -8, "PLAN": -6, "TASK": -7, "NAME": 0, "STATE": 13, "WORKER": 22}
_WORKERS = {
    "WORKER": 0, "HOST": 16, "STATE": 8, "RUN": -7, "ABANDONED": -9, "AHEAD": -6, "LONGEST": -8,
}  # fmt: skip
_QUEUES = {"QUEUE": 0, "RUNNABLE": -9, "RUN": -7, "AHEAD": -7, "WORKERS": -7}


def _sections(seen: Overview, is_wide: bool) -> Iterator[_Section]:
    late = [[_by(each.by), each.text] for each in seen.late]
    yield _Section(_LATE, late, len(late), _ALERT)
    plans = [_plan(each) for each in sorted(seen.plans, key=_first)]
    names = [name for name in _PLANS if is_wide or name != "DONE"]
    rows = [[row[name] for name in names] for row in plans]
    yield _Section({name: _PLANS[name] for name in names}, rows, len(rows))
    tasks = [
        [
            *(_for(seen.when, held.since), str(int(held.plan)), str(int(held.task))),
            "(cannot be read here)" if name is None else name,
            *(held.state, held.worker),
        ]
        for held, name in seen.tasks
    ]
    yield _Section(_TASKS, tasks, seen.held)
    workers = [
        [
            *(worker.record.id, worker.record.host, worker.record.state),
            f"{worker.running}/{worker.record.slots}",
            *(f"{worker.record.abandoned:,}", f"{worker.ahead:,}"),
            "" if worker.since is None else _for(seen.when, worker.since),
        ]
        for worker in sorted(seen.workers, key=lambda worker: worker.since or seen.when)
    ]
    yield _Section(_WORKERS, workers, len(workers))
    queues = [
        [each.name, *(f"{number:,}" for number in each[1:])]
        for each in sorted(seen.queues, key=lambda each: -each.runnable - each.running)
    ]
    yield _Section(_QUEUES, queues, len(queues))


def _first(plan: PlanNow) -> tuple[float, int, int, str]:
    """Sort key: the busiest plans first. Rates are rounded, so that similar plans do not change
    places at each look."""
    seen = plan.status
    rate = float(f"{plan.rate or 0.0:.1g}")
    return -rate, -plan.running - plan.ahead, -seen.runnable - seen.dead, plan.number


def _plan(plan: PlanNow) -> dict[str, str]:
    seen = plan.status
    return {
        "PLAN": str(int(plan.number)),
        "NAME": seen.name,
        "STATE": seen.state,
        "DONE": f"{100 * seen.finished // seen.added} %" if seen.added else "",
        "LEFT": f"{seen.tasks:,}",
        "RUN": f"{plan.running:,}",
        "AHEAD": f"{plan.ahead:,}",
        "RUNNABLE": f"{seen.runnable:,}",
        "DEAD": f"{seen.dead:,}",
        "RATE/S": "" if plan.rate is None else _rate(plan.rate),
        "ENDS IN": "" if plan.left is None else duration(plan.left, up=True),
    }


def _for(now: float, since: float) -> str:
    return duration(max(0.0, now - since))


def _by(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return duration(seconds) if seconds >= 0 else f"in {duration(-seconds, up=True)}"


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}"


def _shared(wanted: Sequence[int], room: int) -> list[int]:
    """Share lines equally among sections; lines that one does not need go to the others.

    >>> _shared([1, 50, 50], 21), _shared([2, 2], 50)
    ([1, 10, 10], [2, 2])
    """
    given = [0] * len(wanted)
    while room > 0 and any(have < want for have, want in zip(given, wanted, strict=True)):
        for at, want in enumerate(wanted):
            if given[at] < want and room > 0:
                given[at] += 1
                room -= 1
    return given


def _drawn(section: _Section, room: int, width: int) -> Iterable[Line]:
    titles, widths = list(section.columns), list(section.columns.values())
    flexible = widths.index(0)
    widths[flexible] = max(4, width - sum(abs(each) + 1 for each in widths if each) - 1)
    rows = section.rows[:room]
    if len(rows) < section.total:
        titles[flexible] += f" {len(rows):,}/{section.total:,}"
    for cells, style in [(titles, _HEAD), *((row, section.style) for row in rows)]:
        line = " ".join(_fit(cell, wide) for cell, wide in zip(cells, widths, strict=True))
        yield Line(_fit(line, width), style)


def _fit(text: str, width: int) -> str:
    """Pad or cut the text to `width` cells of a terminal; `…` marks a cut. A negative width aligns
    the text on the right."""
    text, room = one_line(text), abs(width)
    wide = cell_len(text)
    if wide > room:
        return set_cell_size(text, room - 1) + "…"
    blanks = " " * (room - wide)
    return blanks + text if width < 0 else text + blanks


# ---- The live view: one thread reads, another draws and can so report a silent server.
#
# Signals, resizing and new looks wake the drawing thread through a pipe: a handler must not touch
# locks.


#: Seconds without a new look after which the view reports it.
_SILENT_S = 2.0
_DRAWN_EVERY_S = 1.0


class _LastRecord(logging.Handler):
    """Keeps the last warning: a line on the terminal would spoil the picture."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()


def keep_logs() -> _LastRecord:
    """Write no log line to the terminal. Call it before the client is opened."""
    kept = _LastRecord(logging.WARNING)
    logging.basicConfig(level=logging.INFO, handlers=[kept])
    return kept


class Live:
    """The view, from `run` to Ctrl-C or SIGTERM."""

    def __init__(
        self,
        observer: Observer,
        transport: Transport,
        place: str,
        interval_s: float,
        last: _LastRecord,
    ) -> None:
        self._observer, self._transport, self._place = observer, transport, place
        self._interval_s, self._last = interval_s, last
        self._console = Console()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._ended = False
        #: The last overview of the other thread, and its time by the monotonic clock.
        self._seen: Overview | None = None
        self._seen_at = time.monotonic()
        self._silence = ""
        self._error: BaseException | None = None

    def run(self) -> None:
        """Draw until a signal arrives. Raises the error that ends the other thread."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._end())
        signal.signal(signal.SIGWINCH, lambda *_: self._wake_up())
        threading.Thread(target=self._look_on, name="zkplan-top", daemon=True).start()
        with self._console.screen() as screen:
            while not self._ended and self._error is None:
                self._console.control(Control.home())
                screen.update(self._drawn())
                if select.select([self._woken], [], [], _DRAWN_EVERY_S)[0]:
                    os.read(self._woken, 4096)
        if self._error is not None and not self._ended:
            raise self._error

    def _end(self) -> None:
        self._ended = True
        self._wake_up()

    def _wake_up(self) -> None:
        with suppress(BlockingIOError):  # a full pipe wakes as well
            os.write(self._wake, b"x")

    def _look_on(self) -> None:
        """Read overviews, in a thread of its own."""
        try:
            while not self._ended:
                started = time.monotonic()
                try:
                    # The picture has no room for more names than the terminal has lines.
                    self._seen = self._observer.look(names=self._console.size.height)
                    self._seen_at, self._silence, self._last.text = time.monotonic(), "", ""
                except ServerRolledBack:
                    raise
                except ZooKeeperUnavailable as error:
                    self._silence = str(error)  # the server may come back: ask again
                self._wake_up()
                time.sleep(max(0.0, self._interval_s - (time.monotonic() - started)))
        except BaseException as error:  # the terminal is restored before it is raised
            self._error = error
        finally:
            self._wake_up()

    def _drawn(self) -> Group:
        width, height = self._console.size
        seen = self._seen
        if seen is None:
            notice = self._notice() or "looking …"
            return Group(Text(one_line(f"zkplan top  {self._place}: {notice}")))
        lines = picture(seen, self._place, self._notice(), width, height)
        # The last cell of the last line would scroll some terminals.
        return Group(
            *(Text(each.text, style=each.style, no_wrap=True, overflow="crop") for each in lines)
        )

    def _notice(self) -> str:
        """Report a server that does not answer; empty if it does."""
        age_s = time.monotonic() - self._seen_at
        if age_s < self._interval_s + _SILENT_S and not self._silence:
            return ""
        since = datetime.fromtimestamp(time.time() - age_s).strftime("%H:%M:%S")
        hosts = self._transport.hosts
        last = f": {one_line(self._last.text)}" if self._last.text else ""
        return f"NO ANSWER from {hosts} for {duration(age_s)}, this view is of {since}{last}"
