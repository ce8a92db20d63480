"""Draw the time line of a plan as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from ..basics.text import count, took
from .history_state import FAILED, SKIPPED, PlanState, TaskState
from .timeline_spans import (
    GROUPS_MAX,
    SINGLE_MAX,
    Span,
    average,
    chosen,
    critical_path,
    grouped,
    has_failed,
    runs,
    waits,
)

#: Waiting for results of others, runnable or delayed, claimed and not started, running.
WAITING, RUNNABLE, CLAIMED, RUNNING = " ", "·", "-", "█"
#: How many tasks run at a time, in eighths of the maximum of all rows of the same part.
DENSITY = " ▁▂▃▄▅▆▇█"
#: Columns of the names in a wide and in a narrow picture, the least width of a wide one, and the
#: columns after the bars.
LABEL, LABEL_NARROW, NARROW, BEHIND = 26, 18, 100, 40
#: The most tasks of the critical path that are listed: those that took longest.
PATH_MAX = 10


_ENDED, _RAN = 15, 11
_BEHIND = f"{'ENDED':>{_ENDED}} {'RAN':>{_RAN}}"


class Line(NamedTuple):
    """A line of the picture. `fails`: some of its tasks are dead or have failed for good."""

    text: str
    fails: bool = False


class _Picture(NamedTuple):
    """What all parts share: the span, the time of the last event, and the width of the names."""

    span: Span
    now: int
    label: int
    on_path: set[int]

    def row(self, mark: str, name: str, bar: str, behind: str, fails: bool = False) -> Line:
        return Line(f"{mark}{self.short(name):{self.label - 1}}{bar} {behind}".rstrip(), fails)

    def short(self, text: str) -> str:
        return text if len(text) < self.label - 1 else f"{text[: self.label - 3]}…"


def timeline(state: PlanState, width: int = 100) -> Iterator[Line]:
    """The lines of the picture, from the first event of a task to the last."""
    begun = [task for task in state.tasks.values() if task.claims or task.gone]
    if not begun:
        yield Line("nothing has run yet")
        return
    first = [task.added_ms or task.runnable_ms or task.claimed_ms for task in begun]
    label = LABEL if width >= NARROW else LABEL_NARROW
    span = Span(min(filter(None, first), default=0), state.ms, max(20, width - label - BEHIND))
    path = critical_path(state.tasks)
    drawn = _Picture(span, state.ms, label, {task.number for task in path})
    yield from _head(state, span)
    if len(begun) <= SINGLE_MAX:
        yield from _single(drawn, begun)
    else:
        yield from _grouped(drawn, state.tasks.values())
    yield Line("")
    yield from _workers(drawn, begun)
    yield from _critical_path(drawn, path, state.has_ended)


def label(task: TaskState) -> str:
    return f"{task.name or 'task'} {task.number}"


def _head(state: PlanState, span: Span) -> Iterator[Line]:
    """When the plan ran, for how long, and how many of its tasks have ended."""
    states = Counter(task.state for task in state.tasks.values())
    ended = sum(task.gone for task in state.tasks.values())
    first, last = _clock(span.first), _clock(span.last)
    told = [f"{ended:,} of {count(len(state.tasks), 'task')} ended"]
    told += [
        f"{states[name]:,} {name}"
        for name in ("dead", "failed", "skipped", "delayed", "running", "runnable", "waiting")
        if states[name]
    ]
    yield Line(
        f"{first} to {last if last[:10] != first[:10] else last[11:]}, "
        f"{took(span.last - span.first)}"
    )
    yield Line(", ".join(told))
    yield Line("")


def _clock(ms: int) -> str:
    # A damaged history may have any time.
    return datetime.fromtimestamp(max(0, ms) / 1000).isoformat(" ", "seconds")


def _scale(drawn: _Picture, title: str, behind: str) -> Line:
    """The times above the bars: of the day, or for a short plan in seconds since it began."""
    span, wide = drawn.span, drawn.span.columns
    bar = [" "] * (wide + 8)
    for at in range(0, wide - 8, max(16, wide // 4)):
        ms = span.begin(at)
        is_short = span.last - span.first < 20_000
        told = f"{(ms - span.first) / 1000:.1f} s" if is_short else _clock(ms)[11:]
        bar[at : at + len(told) + 1] = f"╷{told}"
    return drawn.row(" ", title, "".join(bar)[:wide], behind)


def _single(drawn: _Picture, tasks: Iterable[TaskState]) -> Iterator[Line]:
    yield _scale(drawn, "TASK", "RAN")
    for task in sorted(tasks, key=lambda each: each.started_ms or each.claimed_ms or each.ended_ms):
        bar = [WAITING] * drawn.span.columns
        if waited := waits(task, drawn.now):
            _fill(bar, drawn.span, *waited, RUNNABLE)
            if task.place != "c" and task.claimed_ms:
                _fill(bar, drawn.span, task.claimed_ms, waited[1], CLAIMED)
        for first, last in runs(task, drawn.now):
            _fill(bar, drawn.span, first, last, RUNNING)
        mark = "*" if task.number in drawn.on_path else " "
        yield drawn.row(mark, label(task), "".join(bar), _outcome(task), has_failed(task))
    legend = f"{RUNNABLE} runnable  {CLAIMED} claimed, not started  {RUNNING} running"
    yield Line(f"{'':{drawn.label}}{legend}  * on the critical path")


def _fill(bar: list[str], span: Span, first: int, last: int, character: str) -> None:
    if first and last >= first:
        for column in range(span.column(first), span.column(last) + 1):
            bar[column] = character


def _outcome(task: TaskState) -> str:
    ran = took(task.ran_ms) if task.ran_ms >= 0 else ""
    if has_failed(task) or task.flags & FAILED:
        return f"{ran} {task.error or 'dead'}".strip()
    if task.flags & SKIPPED:
        return "skipped"
    return ran if task.gone else f"{task.state} …"


def _grouped(drawn: _Picture, tasks: Iterable[TaskState]) -> Iterator[Line]:
    groups = grouped(tasks)
    shown = set(chosen(groups))
    order = sorted(
        shown,
        key=lambda name: min(
            (each.started_ms or each.claimed_ms or each.ended_ms or drawn.now + each.number)
            for each in groups[name]
        ),
    )
    rest = [task for name in groups if name not in shown for task in groups[name]]
    named = [(name or "(no name)", groups[name]) for name in order]
    if rest:
        named.append((f"({len(groups) - len(shown):,} other names)", rest))
    yield _scale(drawn, "NAME", _BEHIND)
    bars, most = _bars(drawn, [found for _, found in named])
    for (name, found), bar in zip(named, bars, strict=True):
        mark = "*" if any(task.number in drawn.on_path for task in found) else " "
        fails = any(map(has_failed, found))
        yield drawn.row(mark, name, bar, _counted(found), fails)
    legend = f"█ {_most(most)} at a time  {RUNNABLE} runnable, none runs"
    yield Line(f"{'':{drawn.label}}{legend}  * on the critical path")


def _counted(tasks: Sequence[TaskState]) -> str:
    """How many tasks have ended, how long they ran together, and how many are in some states."""
    ended = sum(task.gone for task in tasks)
    done = f"{ended:,}" if ended == len(tasks) else f"{ended:,} of {len(tasks):,}"
    ran = took(sum(max(0, task.ran_ms) for task in tasks))
    states = Counter(task.state for task in tasks)
    told = [
        f"{states[each]:,} {each}"
        for each in ("dead", "failed", "delayed", "running")
        if states[each]
    ]
    return "  ".join([f"{done:>{_ENDED}} {ran:>{_RAN}}", ", ".join(told)])


def _bars(
    drawn: _Picture, rows: Sequence[Sequence[TaskState]], with_waits: bool = True
) -> tuple[list[str], float]:
    """A bar for each row, in one scale, and how many running tasks its full height stands for."""
    span, now, height = drawn.span, drawn.now, len(DENSITY) - 1
    running = [average((each for task in row for each in runs(task, now)), span) for row in rows]
    waiting = [
        average(filter(None, (waits(task, now) for task in row if with_waits)), span)
        for row in rows
    ]
    most = max((each for row in running for each in row), default=0.0)

    def character(running: float, waiting: float) -> str:
        if running:
            return DENSITY[min(height, -int(-running * height // most))]
        return RUNNABLE if waiting else WAITING

    bars = ["".join(map(character, *columns)) for columns in zip(running, waiting, strict=True)]
    return bars, most


def _most(most: float) -> str:
    return f"{most:.0f}" if most >= 10 else f"{most:.1f}".removesuffix(".0")


def _workers(drawn: _Picture, tasks: Iterable[TaskState]) -> Iterator[Line]:
    by: dict[str, list[TaskState]] = {}
    for task in tasks:
        if task.worker:
            by.setdefault(task.worker, []).append(task)
    shown = sorted(by, key=lambda each: -len(by[each]))[:GROUPS_MAX]
    bars, most = _bars(drawn, [by[worker] for worker in shown], with_waits=False)
    yield _scale(drawn, "WORKER", _BEHIND)
    for worker, bar in zip(shown, bars, strict=True):
        ended = f"{sum(task.gone for task in by[worker]):,}"
        ran = took(sum(max(0, task.ran_ms) for task in by[worker]))
        held = sum(task.place == "c" for task in by[worker])
        now = f"  {held:,} running" if held else ""
        yield drawn.row(" ", worker, bar, f"{ended:>{_ENDED}} {ran:>{_RAN}}{now}")
    if len(by) > len(shown):
        yield Line(f" and {count(len(by) - len(shown), 'other worker')}")
    yield Line(f"{'':{drawn.label}}█ {_most(most or 1.0)} at a time")


def _critical_path(drawn: _Picture, path: list[TaskState], has_ended: bool) -> Iterator[Line]:
    if len(path) < 2:
        return
    total = path[-1].ended_ms - (path[0].added_ms or path[0].claimed_ms)
    ran = sum(max(0, task.ran_ms) for task in path)
    so_far = "" if has_ended else " so far"
    yield Line("")
    tasks = count(len(path), "task")
    yield Line(f"critical path{so_far}: {tasks} one by one, {took(total)}, {took(ran)} of it run")
    titles = f"{'WAITED':>{_RAN + 1}} {'RAN':>{_RAN}}"
    yield drawn.row(" ", "TASK", titles, "WORKER")
    longest = sorted(path, key=_whole, reverse=True)[:PATH_MAX]
    for task in (each for each in path if each in longest):
        waited = took(_whole(task) - max(0, task.ran_ms))
        took_so = f"{waited:>{_RAN + 1}} {took(max(0, task.ran_ms)):>{_RAN}}"
        yield drawn.row(" ", label(task), took_so, task.worker)
    if len(path) > len(longest):
        yield Line(f" and {count(len(path) - len(longest), 'other task')} that took less")


def _whole(task: TaskState) -> int:
    """How long it took from runnable on: the wait for a worker, and the run, in ms."""
    ready = task.runnable_ms or task.claimed_ms
    return max(0, (task.started_ms or ready) - ready) + max(0, task.ran_ms)
