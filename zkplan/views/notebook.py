"""Show plans and tasks in a notebook, and redraw them until they end.

One thread draws all displays. It begins with the first display and ends with the last one. Each
display stops by itself: after LIVE_S, or once DISPLAYS_MAX newer ones are drawn.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from ..basics.notebook_html import Picture, colour_of
from ..basics.text import one_line
from .graph import Box

#: Seconds between two looks: short after a change, longer while nothing changes.
PAUSE_S, PAUSE_MAX_S = 0.5, 5.0
#: The least pause after a look, in multiples of the duration of the look.
REST = 10
LIVE_S = 3600.0
DISPLAYS_MAX = 16
THREAD = "zkplan-notebook"


class _Handle:
    """One output of a cell. A new picture replaces it in place, also after the cell has ended."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._of_ipython: Any = None

    def show(self, html: str) -> None:
        from IPython.display import display

        data = {"text/html": html, "text/plain": self._text}
        if self._of_ipython is None:
            self._of_ipython = display(data, raw=True, display_id=True)
        else:
            self._of_ipython.update(data, raw=True)


class _Display:
    """A picture that is shown, and when it is drawn next."""

    def __init__(self, text: str, draw: Callable[[], Picture], first: Picture) -> None:
        self._draw, self._shown = draw, first.html
        self._handle = _Handle(text)
        self._handle.show(first.html)
        self._pause_s = PAUSE_S
        self._until = time.monotonic() + LIVE_S
        self.due = time.monotonic() + PAUSE_S
        self.is_over = False

    def look(self) -> bool:
        """Draw the picture; show it if it has changed. Returns whether more changes may come."""
        begun = time.monotonic()
        picture = self._draw()
        if picture.html != self._shown:
            self._handle.show(picture.html)
            self._shown, self._pause_s = picture.html, PAUSE_S
        else:
            self._pause_s = min(PAUSE_MAX_S, 1.5 * self._pause_s)
        if picture.is_last:
            return False
        now = time.monotonic()
        if self.is_over or now > self._until:
            self._leave()
            return False
        self.due = now + max(self._pause_s, REST * (now - begun))
        return True

    def _leave(self) -> None:
        """Say that the picture is not redrawn any more."""
        told = f"as it was at {time.strftime('%H:%M:%S')}: display it again to redraw it"
        self._handle.show(f'{self._shown}<div style="opacity:.7">{escape(told)}</div>')


class _Displays:
    """All displays of this process, and the thread that draws them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._all: list[_Display] = []
        self._thread: threading.Thread | None = None

    def add(self, display: _Display) -> None:
        with self._lock:
            self._all.append(display)
            for old in self._all[:-DISPLAYS_MAX]:
                old.is_over = True  # the thread may be drawing it now, and ends it
            if self._thread is None and not self._ended.is_set():
                self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
                self._thread.start()

    def _next(self) -> _Display | None:
        """The display that is due next. If there is none, this thread stops drawing."""
        with self._lock:
            if not self._all:
                self._thread = None
                return None
            return min(self._all, key=lambda display: display.due)

    def _run(self) -> None:
        while (display := self._next()) is not None:
            # At most PAUSE_S, because a new display may be due by then.
            if self._ended.wait(max(0.0, min(PAUSE_S, display.due - time.monotonic()))):
                return
            if display.due <= time.monotonic() and not self._goes_on(display):
                self._remove(display)

    def _goes_on(self, display: _Display) -> bool:
        try:
            return display.look()
        except BaseException:
            self._remove(display)  # the next thread draws the other displays
            with self._lock:
                self._thread = None
            raise

    def _remove(self, display: _Display) -> None:
        with self._lock:
            if display in self._all:
                self._all.remove(display)

    def end(self) -> None:
        """Stop drawing, because the interpreter ends."""
        self._ended.set()
        thread = self._thread
        if thread is not None:
            thread.join(PAUSE_MAX_S)


_displays = _Displays()
atexit.register(lambda: _displays.end())


def _renew() -> None:
    global _displays
    _displays = _Displays()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)  # the thread belongs to the parent


def show_live(text: str, draw: Callable[[], Picture]) -> bool:
    """Show a picture in the running cell, and redraw it until `draw` returns its last one. Outside
    of a notebook, show nothing and return False."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if not hasattr(shell, "kernel"):  # none, or the one of a terminal
        return False
    first = draw()
    if first.is_last:
        _Handle(text).show(first.html)
    else:
        _displays.add(_Display(text, draw, first))
    return True


# ---- The unfinished part of a plan as a small picture: alike tasks in one box, level by level.


#: The most boxes and levels of a small picture.
BOXES_MAX, LEVELS_MAX = 30, 8
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 116, 34, 34, 8
_NAME_MAX = 17
_INK = "font:11px system-ui,sans-serif;fill:currentColor"


_Key = tuple[int, str]


def graph_svg(boxes: Sequence[Box], edges: Mapping[tuple[int, int], int]) -> str:
    """The picture; empty if it would be too large, or if no edge joins two boxes."""
    states: dict[_Key, dict[str, int]] = defaultdict(dict)
    keys: list[_Key] = []
    for box in boxes:
        key = (box.level or 0, box.function)
        keys.append(key)
        states[key][box.state] = states[key].get(box.state, 0) + len(box.tasks)
    ways = {(keys[a], keys[b]) for a, b in edges if keys[a] != keys[b]}
    levels: dict[int, list[_Key]] = defaultdict(list)
    for key in states:
        levels[key[0]].append(key)
    if not ways or len(states) > BOXES_MAX or len(levels) > LEVELS_MAX:
        return ""
    tallest = max(map(len, levels.values()))
    at = {
        key: (
            column * (_WIDTH + _GAP_X) + 1.0,
            (tallest - len(levels[level])) * (_HEIGHT + _GAP_Y) / 2
            + row * (_HEIGHT + _GAP_Y)
            + 1.0,
        )
        for column, level in enumerate(sorted(levels))
        for row, key in enumerate(levels[level])
    }
    width = len(levels) * (_WIDTH + _GAP_X) - _GAP_X + 2
    height = tallest * (_HEIGHT + _GAP_Y) - _GAP_Y + 2
    drawn = [_line(at[source], at[target]) for source, target in sorted(ways)]
    drawn += [_box(key[1], states[key], at[key]) for key in states]
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" style="max-width:100%;height:auto" '
        f'role="img" aria-label="The graph that is left">{"".join(drawn)}</svg>'
    )


def _line(source: tuple[float, float], target: tuple[float, float]) -> str:
    x, y = source[0] + _WIDTH, source[1] + _HEIGHT / 2
    to_x, to_y = target[0], target[1] + _HEIGHT / 2
    bend = (to_x - x) / 2
    return (
        f'<path d="M{x:g} {y:g}C{x + bend:g} {y:g} {to_x - bend:g} {to_y:g} {to_x:g} {to_y:g}" '
        'fill="none" stroke="#8888" />'
    )


def _box(function: str, states: Mapping[str, int], at: tuple[float, float]) -> str:
    many = sum(states.values())
    name = one_line(function.rpartition(".")[2])
    times = f" {many:,}" if many > 1 else ""
    room = _NAME_MAX - len(times)
    short = (name if len(name) <= room else name[: room - 1] + "…") + times
    told = ", ".join(f"{number:,} {state}" for state, number in states.items())
    parts, left = "", at[0] + 6.0
    for state, number in states.items():
        wide = (_WIDTH - 12) * number / many
        parts += (
            f'<rect x="{left:.1f}" y="{at[1] + _HEIGHT - 9:g}" width="{wide:.1f}" height="4" '
            f'fill="{colour_of(state)}" />'
        )
        left += wide
    return (
        f"<g><title>{escape(name)}: {escape(told)}</title>"
        f'<rect x="{at[0]:g}" y="{at[1]:g}" width="{_WIDTH}" height="{_HEIGHT}" rx="5" '
        f'fill="none" stroke="#888" />'
        f'<text x="{at[0] + 6:g}" y="{at[1] + 16:g}" style="{_INK}">{escape(short)}</text>'
        f"{parts}</g>"
    )
