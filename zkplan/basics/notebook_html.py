"""Draw a plan, its status and a task as HTML for notebooks.

What somebody wrote into the tree is escaped here, once and for all: no name becomes markup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape
from typing import NamedTuple, Protocol

from ..errors import ZkplanError, ZooKeeperUnavailable
from .text import count, one_line

_FRAME = "font:13px/1.5 system-ui,sans-serif;max-width:640px;font-variant-numeric:tabular-nums"
_BAR = "display:flex;height:10px;border-radius:5px;overflow:hidden;margin:5px 0;background:#8884"


class Picture(NamedTuple):
    """What is shown, as HTML. Behind the last one nothing changes any more."""

    html: str
    is_last: bool


class Progress(Protocol):
    """What is needed of a PlanProgress."""

    @property
    def added(self) -> int: ...
    @property
    def finished(self) -> int: ...


class Status(Protocol):
    """What is needed of a PlanStatus."""

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def has_ended(self) -> bool: ...
    @property
    def tasks(self) -> int: ...
    @property
    def runnable(self) -> int: ...
    @property
    def dead(self) -> int: ...
    @property
    def added(self) -> int: ...
    @property
    def finished(self) -> int: ...


def status_html(status: Status) -> str:
    """A plan as its status shows it; tasks that run cannot be told from those that wait."""
    rest = max(0, status.tasks - status.runnable - status.dead)
    counts = {
        "finished": status.finished,
        "runnable": status.runnable,
        "running or waiting": rest,
        "dead": status.dead,
    }
    return _framed(status, counts)


def plan_picture(status: Status, progress: Progress, graph: str) -> Picture:
    """A plan with its tasks counted by state, above a picture of its graph."""
    html = _framed(status, {state: getattr(progress, state) for state in COLOURS}) + graph
    return Picture(html, status.has_ended)


def task_picture(path: str, state: str, facts: Iterable[tuple[str, str]]) -> Picture:
    """A task: what is known of it, line by line; facts without a text are left out."""
    rows = "".join(
        f'<tr><td style="text-align:left;opacity:.7">{escape(name)}</td>'
        f'<td style="text-align:left">{escape(one_line(text))}</td></tr>'
        for name, text in facts
        if text
    )
    html = f'<div style="{_FRAME}"><code>{escape(one_line(path))}</code><table>{rows}</table></div>'
    return Picture(html, state == "finished")


def readable(text: str, draw: Callable[[], Picture]) -> Picture:
    """What `draw` makes. Where it cannot read, `text` with the reason: a cell that shows a handle
    has not failed by that. It is the last one unless ZooKeeper is only away."""
    try:
        return draw()
    except ZkplanError as error:
        told = f"{type(error).__name__}: {error}"
        html = f'<div style="{_FRAME}"><code>{escape(text)}</code><br>{escape(told)}</div>'
        return Picture(html, not isinstance(error, ZooKeeperUnavailable))


def _framed(status: Status, counts: dict[str, int]) -> str:
    all_of_them = max(1, sum(counts.values()))
    parts = "".join(
        f'<span style="width:{100 * number / all_of_them:.2f}%;'
        f'background:{colour_of(state)}"></span>'
        for state, number in counts.items()
        if number
    )
    told = ", ".join(f"{number:,} {state}" for state, number in counts.items() if number)
    name = escape(one_line(status.name)) or "(without a name)"
    return (
        f'<div style="{_FRAME}"><b>{name}</b> {escape(status.state)} · '
        f"<code>{escape(status.path)}</code>"
        f'<div style="{_BAR}" role="img" aria-label="{escape(told)}">{parts}</div>'
        f"{count(status.added, 'task')}{': ' if told else ''}{escape(told)}</div>"
    )


# ---- The colours of states in a notebook: readable on a light and on a dark ground, beside words.


COLOURS = {
    "finished": "#2f8f5b",
    "running": "#4a6ee0",
    "runnable": "#1f8fb3",
    "delayed": "#b8860b",
    "gated": "#8e5cc2",
    "waiting": "#8a93a3",
    "dead": "#cf4a41",
}


def colour_of(state: str) -> str:
    """The colour of a state; that of waiting for one without a colour of its own."""
    return COLOURS.get(state, COLOURS["waiting"])
