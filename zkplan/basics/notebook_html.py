"""Draw plans and tasks as HTML for notebooks. All text from the tree is escaped here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import NamedTuple

from ..errors import ZkplanError, ZooKeeperUnavailable
from .text import count, one_line

_FRAME = "font:13px/1.5 system-ui,sans-serif;max-width:640px;font-variant-numeric:tabular-nums"
_BAR = "display:flex;height:10px;border-radius:5px;overflow:hidden;margin:5px 0;background:#8884"


class Picture(NamedTuple):
    """HTML to show. If `is_last`, nothing changes after it, so the notebook can stop refreshing."""

    html: str
    is_last: bool


#: The colours of the states of tasks, visible on light and dark grounds. Words repeat each state.
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
    """Return the colour of a state. A state without a colour gets the colour of "waiting"."""
    return COLOURS.get(state, COLOURS["waiting"])


def plan_html(name: str, path: str, state: str, added: int, counts: Mapping[str, int]) -> str:
    """Draw a plan: its name, its state, and a bar with its tasks counted by state."""
    total = max(1, sum(counts.values()))
    bar = "".join(
        f'<span style="width:{100 * number / total:.2f}%;background:{colour_of(each)}"></span>'
        for each, number in counts.items()
        if number
    )
    text = ", ".join(f"{number:,} {each}" for each, number in counts.items() if number)
    return (
        f'<div style="{_FRAME}"><b>{escape(one_line(name)) or "(without a name)"}</b> '
        f"{escape(state)} · <code>{escape(path)}</code>"
        f'<div style="{_BAR}" role="img" aria-label="{escape(text)}">{bar}</div>'
        f"{count(added, 'task')}{': ' if text else ''}{escape(text)}</div>"
    )


def task_picture(path: str, state: str, facts: Iterable[tuple[str, str]]) -> Picture:
    """Draw a task with one line for each fact (a name and a text) whose text is not empty."""
    rows = "".join(
        f'<tr><td style="text-align:left;opacity:.7">{escape(name)}</td>'
        f'<td style="text-align:left">{escape(one_line(text))}</td></tr>'
        for name, text in facts
        if text
    )
    html = f'<div style="{_FRAME}"><code>{escape(one_line(path))}</code><table>{rows}</table></div>'
    return Picture(html, state == "finished")


def readable(text: str, draw: Callable[[], Picture]) -> Picture:
    """Return the picture of `draw`, or if it raises, one of `text` and the reason: showing a handle
    must not fail. After an error no picture follows, unless ZooKeeper is only unavailable."""
    try:
        return draw()
    except ZkplanError as error:
        reason = escape(f"{type(error).__name__}: {error}")
        html = f'<div style="{_FRAME}"><code>{escape(text)}</code><br>{reason}</div>'
        return Picture(html, not isinstance(error, ZooKeeperUnavailable))
