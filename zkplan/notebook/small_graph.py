"""The graph that is left of a plan as a small picture: alike tasks in one box, level by level."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from typing import Protocol

from ..basics.text import one_line
from .colours import colour_of

#: With more of them a small picture is none.
BOXES_MAX, LEVELS_MAX = 30, 8
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 116, 34, 34, 8
_NAME_MAX = 17
_INK = "font:11px system-ui,sans-serif;fill:currentColor"


class Box(Protocol):
    """What is needed of a Box of a PlanGraph."""

    @property
    def level(self) -> int | None: ...
    @property
    def function(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def tasks(self) -> list[str]: ...


_Key = tuple[int, str]


def graph_svg(boxes: Sequence[Box], edges: Mapping[tuple[int, int], int]) -> str:
    """The picture; empty where it would be too large, or has no edge that is worth a picture."""
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
