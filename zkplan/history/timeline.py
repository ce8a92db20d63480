"""The time line of a plan as text: who ran what when, and what it waited for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .state import FAILED, SKIPPED, PlanState, TaskState

#: More tasks than that are drawn by name, not one by one; and so many rows at most.
SINGLE_MAX, ROWS_MAX = 60, 25
#: Waiting for results of others, runnable or delayed, claimed and not started, running.
WAITING, RUNNABLE, CLAIMED, RUNNING = " ", "·", "-", "█"
#: How many of a group run at a time, against the most that ever did.
DENSITY = " ▁▂▃▄▅▆▇█"
LABEL = 26


class Span(NamedTuple):
    """What the picture covers, in ms, and how many columns it has."""

    first: int
    last: int
    columns: int

    def column(self, ms: int) -> int:
        at = (ms - self.first) * self.columns // max(1, self.last - self.first)
        return min(self.columns - 1, max(0, at))


def timeline(state: PlanState, width: int = 100) -> Iterator[str]:
    """Lines of text. Times count from the first event of a task."""
    tasks = [task for task in state.tasks.values() if task.claims or task.gone]
    begun = [task.added_ms or task.runnable_ms or task.claimed_ms for task in tasks]
    if not tasks:
        yield "nothing has run yet"
        return
    span = Span(min(filter(None, begun), default=0), state.ms, max(20, width - LABEL - 16))
    path = critical_path(state)
    on_path = {task.number for task in path}
    if len(tasks) <= SINGLE_MAX:
        yield from _single(tasks, on_path, span, state.ms)
    else:
        yield from _grouped(tasks, on_path, span)
    yield from _workers(tasks, span)
    yield from _told_path(path)


def critical_path(state: PlanState) -> list[TaskState]:
    """The tasks that the end waited for: from the last one that ended back along its edges, each
    time the dependency that ended last."""
    ended = [task for task in state.tasks.values() if task.gone and task.ended_ms]
    path: list[TaskState] = []
    at = max(ended, key=lambda task: task.ended_ms, default=None)
    while at is not None:
        path.append(at)
        before = [state.tasks[n] for n in at.deps if n in state.tasks]
        at = max((t for t in before if t.gone), key=lambda task: task.ended_ms, default=None)
    return path[::-1]


def label(task: TaskState) -> str:
    return f"{task.name or 'task'} {task.number}"


def _single(tasks: Iterable[TaskState], on_path: set[int], span: Span, now: int) -> Iterator[str]:
    yield f"{'':{LABEL}}{_scale(span)}"
    for task in sorted(tasks, key=lambda each: each.started_ms or each.claimed_ms or each.ended_ms):
        bar = [WAITING] * span.columns
        end = task.ended_ms or now
        start = task.started_ms or (task.claimed_ms if not task.gone else end)
        claimed = min(task.claimed_ms or start, start)
        _fill(bar, span, task.runnable_ms or claimed, claimed, RUNNABLE)
        _fill(bar, span, claimed, start, CLAIMED)
        _fill(bar, span, start, end, RUNNING)
        mark = "*" if task.number in on_path else " "
        yield f"{mark}{_short(label(task)):{LABEL - 1}}{''.join(bar)} {_outcome(task)}".rstrip()
    yield (
        f"{'':{LABEL}}{RUNNABLE} runnable  {CLAIMED} claimed, not started  {RUNNING} running"
        "  * on the critical path"
    )


def _fill(bar: list[str], span: Span, first: int, last: int, character: str) -> None:
    if first and last >= first:
        for column in range(span.column(first), span.column(last) + 1):
            bar[column] = character


def _outcome(task: TaskState) -> str:
    took = f"{task.ran_ms / 1000:.2f} s" if task.ran_ms >= 0 else ""
    if task.place == "x" or task.flags & FAILED:
        return f"{took} {task.error or 'dead'}".strip()
    if task.flags & SKIPPED:
        return "skipped"
    return took if task.gone else "…"


def _grouped(tasks: Iterable[TaskState], on_path: set[int], span: Span) -> Iterator[str]:
    groups: dict[str, list[TaskState]] = {}
    for task in tasks:
        groups.setdefault(task.name or "(no name)", []).append(task)
    order = sorted(
        groups, key=lambda name: min(each.started_ms or span.last for each in groups[name])
    )
    shown = sorted(groups, key=lambda name: -len(groups[name]))[:ROWS_MAX]
    yield f"{'':{LABEL}}{_scale(span)}"
    for name in order:
        if name not in shown:
            continue
        found = groups[name]
        mark = "*" if any(task.number in on_path for task in found) else " "
        seconds = sum(max(0, task.ran_ms) for task in found) / 1000
        bar = _density(found, span)
        yield f"{mark}{_short(name):{LABEL - 1}}{bar} {len(found):,} x, {seconds:.1f} s".rstrip()
    if len(groups) > len(shown):
        rest = sum(len(each) for name, each in groups.items() if name not in shown)
        yield f" and {len(groups) - len(shown):,} other names, {rest:,} tasks"
    yield f"{'':{LABEL}}how many of a name run at a time  * on the critical path"


def density(tasks: Iterable[TaskState], span: Span) -> list[int]:
    """How many of them run in each column."""
    steps = [0] * (span.columns + 1)
    for task in tasks:
        if task.started_ms:
            steps[span.column(task.started_ms)] += 1
            steps[span.column(task.ended_ms or span.last) + 1] -= 1
    running, found = 0, []
    for step in steps[:-1]:
        running += step
        found.append(running)
    return found


def _density(tasks: Iterable[TaskState], span: Span) -> str:
    found = density(tasks, span)
    most = max(1, *found)
    return "".join(DENSITY[-(-each * (len(DENSITY) - 1) // most)] for each in found)


def _workers(tasks: Iterable[TaskState], span: Span) -> Iterator[str]:
    by: dict[str, list[TaskState]] = {}
    for task in tasks:
        if task.worker:
            by.setdefault(task.worker, []).append(task)
    yield ""
    for worker in sorted(by, key=lambda each: -len(by[each]))[:ROWS_MAX]:
        found = by[worker]
        yield f" {_short(worker):{LABEL - 1}}{_density(found, span)} {len(found):,} x".rstrip()
    if len(by) > ROWS_MAX:
        yield f" and {len(by) - ROWS_MAX:,} other workers"


def _told_path(path: list[TaskState]) -> Iterator[str]:
    if len(path) < 2:
        return
    total = (path[-1].ended_ms - (path[0].added_ms or path[0].claimed_ms)) / 1000
    ran = sum(max(0, task.ran_ms) for task in path) / 1000
    yield ""
    yield f"critical path: {len(path):,} tasks, {total:.2f} s, of which {ran:.2f} s were run"
    longest = sorted(path, key=lambda task: -task.ran_ms)[:10]
    for task in (each for each in path if each in longest):
        ready = task.runnable_ms or task.claimed_ms
        waited = max(0, (task.started_ms or ready) - ready) / 1000
        ran_s = max(0, task.ran_ms) / 1000
        yield f" {_short(label(task)):{LABEL - 1}}waited {waited:.2f} s, ran {ran_s:.2f} s"


def _scale(span: Span) -> str:
    end = f"{(span.last - span.first) / 1000:.1f} s"
    return f"0 s{end:>{span.columns - 3}}"


def _short(text: str) -> str:
    return text if len(text) < LABEL - 1 else f"{text[: LABEL - 3]}…"
