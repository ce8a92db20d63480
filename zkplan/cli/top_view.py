"""What `zkplan top` draws: an overview as lines of text, and the live view that redraws them."""

from __future__ import annotations

import logging
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group
from rich.control import Control
from rich.text import Text

from ..basics.text import count, duration, one_line
from ..errors import ServerRolledBack, ZkplanError, ZooKeeperUnavailable
from ..transport import Transport
from ..views.overview import Observer, Overview, PlanNow, TaskNow

#: The smallest picture that is drawn; a smaller terminal shows a part of it.
WIDTH_MIN, HEIGHT_MIN = 60, 12
#: From that width on plans say how much of them has finished.
WIDE = 100
_PLAIN, _HEAD, _ALERT = "", "bold reverse", "bold red"


class Line(NamedTuple):
    """One line of the picture, and how it looks: the name of a style of rich."""

    text: str
    style: str = _PLAIN


class _Column(NamedTuple):
    """A column of a section; the one of `width` 0 takes what is left."""

    title: str
    width: int
    is_number: bool = False


class _Section(NamedTuple):
    """A part of the picture: rows, of which as many are drawn as have room."""

    title: str
    columns: Sequence[_Column]
    rows: Sequence[Sequence[str]]
    total: int
    style: str = _PLAIN


def picture(seen: Overview, place: str, notice: str, width: int, height: int) -> list[Line]:
    """The lines for that room. `place` says which root it is, `notice` what is wrong with what is
    shown, such as a server that is away."""
    width, height = max(width, WIDTH_MIN), max(height, HEIGHT_MIN)
    at = datetime.fromtimestamp(seen.when).strftime("%Y-%m-%d %H:%M:%S")
    head = [Line(_fit(f"zkplan top  {at}  {place}", width), "bold")]
    head.append(Line(_fit(notice, width), _ALERT) if notice else Line(_fit(_totals(seen), width)))
    sections = [each for each in _sections(seen, width >= WIDE) if each.rows]
    lines = list(head)
    rooms = _shared([len(each.rows) for each in sections], height - len(head) - len(sections))
    for section, room in zip(sections, rooms, strict=True):
        lines += _drawn(section, room, width)
    if not sections:
        lines.append(Line("no active plan, and no worker"))
    return lines[:height]


def _totals(seen: Overview) -> str:
    running = sum(worker.running for worker in seen.workers)
    told = [
        f"{count(len(seen.plans), 'active plan')} of {len(seen.plans) + seen.others:,}",
        count(len(seen.workers), "worker"),
        f"{running:,} running, {seen.held - running:,} ahead",
        "rate: later" if seen.rate is None else f"{_rate(seen.rate)} tasks/s",
    ]
    return " | ".join(told)


def _sections(seen: Overview, is_wide: bool) -> Iterable[_Section]:
    late = [[_by(each.by), each.text] for each in seen.late]
    yield _Section("LATE", _LATE, late, len(late), _ALERT)
    plans = sorted(seen.plans, key=_first)
    rows, columns = [_plan(each) for each in plans], _PLANS
    if not is_wide:
        rows, columns = [row[:_DONE] + row[_DONE + 1 :] for row in rows], _PLANS_NARROW
    yield _Section("PLAN", columns, rows, len(plans))
    tasks = [_task(each, seen.when) for each in seen.tasks]
    yield _Section("TASK", _TASKS, tasks, seen.held)
    workers = [
        [
            *(worker.record.id, worker.record.host, worker.record.state),
            f"{worker.running}/{worker.record.slots}",
            *(f"{worker.record.abandoned:,}", f"{worker.ahead:,}"),
            "" if worker.since is None else duration(max(0.0, seen.when - worker.since)),
        ]
        for worker in sorted(seen.workers, key=lambda worker: worker.since or seen.when)
    ]
    yield _Section("WORKER", _WORKERS, workers, len(workers))
    queues = [
        [each.name, *(f"{number:,}" for number in each[1:])]
        for each in sorted(seen.queues, key=lambda each: -each.runnable - each.running)
    ]
    yield _Section("QUEUE", _QUEUES, queues, len(queues))


def _first(plan: PlanNow) -> tuple[float, int, int, str]:
    """Plans in which most happens come first. Rates that differ little do not make them change
    places at each look."""
    seen = plan.status
    return (
        -float(f"{plan.rate or 0.0:.1g}"),
        -plan.running - plan.ahead,
        -seen.runnable - seen.dead,
        plan.number,
    )


_LATE = (_Column("SINCE", 8, True), _Column("LATE", 0))
_PLANS: tuple[_Column, ...] = (
    _Column("PLAN", 6, True), _Column("NAME", 0), _Column("STATE", 8),
    _Column("DONE", 5, True), _Column("LEFT", 7, True),
    _Column("RUN", 5, True), _Column("AHEAD", 5, True), _Column("RUNNABLE", 8, True),
    _Column("DEAD", 5, True), _Column("RATE/S", 7, True), _Column("ENDS IN", 8, True),
)  # fmt: skip
_DONE = 3
_PLANS_NARROW = _PLANS[:_DONE] + _PLANS[_DONE + 1 :]
_TASKS = (
    _Column("FOR", 8, True), _Column("PLAN", 6, True), _Column("TASK", 7, True), _Column("NAME", 0),
    _Column("STATE", 13), _Column("WORKER", 22),
)  # fmt: skip
_WORKERS = (
    _Column("WORKER", 0), _Column("HOST", 16), _Column("STATE", 8), _Column("RUN", 7, True),
    _Column("ABANDONED", 9, True), _Column("AHEAD", 6, True), _Column("LONGEST", 8, True),
)  # fmt: skip
_QUEUES = (
    _Column("QUEUE", 0), _Column("RUNNABLE", 9, True), _Column("RUN", 7, True),
    _Column("AHEAD", 7, True), _Column("WORKERS", 7, True),
)  # fmt: skip


def _plan(plan: PlanNow) -> list[str]:
    seen = plan.status
    return [
        *(str(int(plan.number)), seen.name, seen.state),
        f"{100 * seen.finished // seen.added} %" if seen.added else "",
        f"{seen.tasks:,}",
        *(f"{plan.running:,}", f"{plan.ahead:,}", f"{seen.runnable:,}", f"{seen.dead:,}"),
        "" if plan.rate is None else _rate(plan.rate),
        "" if plan.left is None else duration(plan.left, up=True),
    ]


def _task(task: TaskNow, now: float) -> list[str]:
    held = task.held
    name = "(cannot be read here)" if task.name is None else task.name
    held_for = duration(max(0.0, now - held.since))
    return [
        *(held_for, str(int(held.plan)), str(int(held.task)), name, held.state, held.worker),
    ]


def _by(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return duration(seconds) if seconds >= 0 else f"in {duration(-seconds, up=True)}"


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}"


def _shared(wanted: Sequence[int], room: int) -> list[int]:
    """Share lines among sections: all get the same, and what one does not need goes to the others.

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
    flexible = width - sum(each.width + 1 for each in section.columns if each.width) - 1
    widths = [each.width or max(flexible, 4) for each in section.columns]
    titles = [each.title for each in section.columns]
    shown = min(room, len(section.rows))
    if shown < section.total:
        at = next(index for index, each in enumerate(section.columns) if not each.width)
        titles[at] += f" {shown:,}/{section.total:,}"
    yield Line(_row(titles, section.columns, widths, width), _HEAD)
    for row in section.rows[:shown]:
        yield Line(_row(row, section.columns, widths, width), section.style)


def _row(
    cells: Sequence[str], columns: Sequence[_Column], widths: Sequence[int], width: int
) -> str:
    made = [
        _fit(cell, wide, right=column.is_number)
        for cell, column, wide in zip(cells, columns, widths, strict=True)
    ]
    return _fit(" ".join(made), width)


def _fit(text: str, width: int, right: bool = False) -> str:
    """The text on exactly so many cells of a terminal; what is cut off is marked."""
    text = one_line(text)
    wide = cell_len(text)
    if wide > width:
        return set_cell_size(text, width - 1) + "…"
    return " " * (width - wide) + text if right else text + " " * (width - wide)


#: Draws what there is for a width and a height.
Draw = Callable[[int, int], list[Line]]


# ---- The live view of `zkplan top`: one thread looks, this one draws, so that a silent server is
# told.
#
# Signals, resizing and new looks wake the drawing thread through a pipe: a handler must not touch
# locks.


#: Seconds without a new look after which the view says so.
_SILENT_S = 2.0
_DRAWN_EVERY_S = 1.0


class _LastRecord(logging.Handler):
    """Keeps the last warning: a line on the terminal would spoil the picture."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()


def keep_logs() -> _LastRecord:
    """Have no log line written to the terminal, from before the client is opened."""
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
        os.set_blocking(self._woken, False)
        self._ended = False
        #: What the looking thread has seen last, and when by the monotonic clock.
        self._seen: Overview | None = None
        self._seen_at = time.monotonic()
        self._silence = ""
        self._error: BaseException | None = None

    def run(self) -> None:
        """Draw until a signal ends it. Raises what ends the looking thread."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._end())
        signal.signal(signal.SIGWINCH, lambda *_: self._wake_up())
        threading.Thread(target=self._look_on, name="zkplan-top", daemon=True).start()
        with self._console.screen() as screen:
            while not self._ended and self._error is None:
                self._console.control(Control.home())
                screen.update(self._drawn())
                select.select([self._woken], [], [], _DRAWN_EVERY_S)
                self._read_pipe()
        if self._error is not None and not self._ended:
            raise self._error

    def _end(self) -> None:
        self._ended = True
        self._wake_up()

    def _wake_up(self) -> None:
        try:
            os.write(self._wake, b"x")
        except BlockingIOError:
            pass  # the pipe is full: it wakes up anyway

    def _read_pipe(self) -> None:
        try:
            while os.read(self._woken, 4096):
                pass
        except BlockingIOError:
            pass

    def _look_on(self) -> None:
        """On a thread of its own."""
        try:
            while not self._ended:
                started = time.monotonic()
                try:
                    # More names than there are lines on most terminals are never drawn.
                    self._seen = self._observer.look(names=self._console.size.height)
                    self._seen_at, self._silence, self._last.text = time.monotonic(), "", ""
                except ServerRolledBack:
                    raise
                except ZooKeeperUnavailable as error:
                    self._silence = str(error)  # it may come back: ask again
                self._wake_up()
                time.sleep(max(0.0, self._interval_s - (time.monotonic() - started)))
        except ZkplanError as error:
            self._error = error
        except BaseException as error:  # whatever it is, the terminal is given back first
            self._error = error
        finally:
            self._wake_up()

    def _drawn(self) -> Group:
        width, height = self._console.size
        seen = self._seen
        if seen is None:
            told = self._notice() or "looking …"
            return Group(Text(one_line(f"zkplan top  {self._place}: {told}")))
        lines = picture(seen, self._place, self._notice(), width, height)
        # The last cell of the last line would scroll some terminals.
        return Group(
            *(Text(each.text, style=each.style, no_wrap=True, overflow="crop") for each in lines)
        )

    def _notice(self) -> str:
        """What is to be told of a server that does not answer; empty if it does."""
        age_s = time.monotonic() - self._seen_at
        if age_s < self._interval_s + _SILENT_S and not self._silence:
            return ""
        since = datetime.fromtimestamp(time.time() - age_s).strftime("%H:%M:%S")
        hosts = self._transport.hosts
        last = f": {one_line(self._last.text)}" if self._last.text else ""
        return f"NO ANSWER from {hosts} for {duration(age_s)}, this is of {since}{last}"
