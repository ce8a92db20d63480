"""The pictures of a report, as SVG: throughput over time, take-over times, memory. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from .words import counted

_WIDTH, _HEIGHT = 1000, 260
_LEFT, _TOP, _BOTTOM = 50, 20, 30
_BAR, _FAULT, _AXIS = "#4477aa", "#ee6677", "#666666"
_LINES = ("#4477aa", "#228833", "#aa3377")
Mark = tuple[float, float, str]


def throughput(times: Sequence[float], seconds: float, marks: Sequence[Mark]) -> str:
    """Executions that returned in each slice of the run; the shaded times are those of faults.

    `times` and `marks` are in seconds from the beginning of the run.
    """
    slices = min(500, max(1, int(seconds)))
    counts = [0] * slices
    for at in times:
        if 0 <= at < seconds:
            counts[int(at / seconds * slices)] += 1
    per_slice = seconds / slices
    rates = [count / per_slice for count in counts]
    parts = []
    for begin, end, name in marks:
        x = _x(max(0.0, begin), seconds)
        width = max(1.0, _x(min(end, seconds), seconds) - x)
        parts.append(
            f'<rect x="{x:.1f}" y="{_TOP}" width="{width:.1f}" height="{_inner_height()}" '
            f'fill="{_FAULT}" opacity="0.25"><title>{escape(name)}, {begin:.1f} s</title></rect>'
        )
    parts += _bars(rates)
    return _svg(parts, f"{max(rates, default=0):.0f} tasks/s", f"{seconds:.0f} s")


def histogram(values: Sequence[float], width_s: float = 0.25) -> str:
    """How many values fall into each slice of `width_s` seconds."""
    slices = int(max(values, default=0.0) / width_s) + 1
    counts = [0.0] * slices
    for value in values:
        counts[int(value / width_s)] += 1
    return _svg(_bars(counts), counted(int(max(counts)), "takeover"), f"{slices * width_s:g} s")


def lines(series: Mapping[str, Sequence[tuple[float, float]]], seconds: float, unit: str) -> str:
    """A line for each name, of (seconds, value); all begin at 0 of the values."""
    top = max((value for points in series.values() for _, value in points), default=0.0) or 1.0
    parts = []
    for index, (name, points) in enumerate(sorted(series.items())):
        colour = _LINES[index % len(_LINES)]
        path = " ".join(
            f"{_x(at, seconds):.1f},{_TOP + (1 - value / top) * _inner_height():.1f}"
            for at, value in points
        )
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}"/>')
        parts.append(
            f'<text x="{_LEFT + 10 + 200 * index}" y="{_HEIGHT - _BOTTOM - 8}" font-size="12" '
            f'fill="{colour}">{escape(name)}</text>'
        )
    return _svg(parts, f"{top:.0f} {unit}", f"{seconds:.0f} s")


def _bars(values: Sequence[float]) -> list[str]:
    top = max(values, default=0.0) or 1.0
    step = (_WIDTH - _LEFT) / max(1, len(values))
    bars = []
    for index, value in enumerate(values):
        height = value / top * _inner_height()
        bars.append(
            f'<rect x="{_LEFT + index * step:.1f}" y="{_TOP + _inner_height() - height:.1f}" '
            f'width="{max(0.5, step * 0.9):.1f}" height="{height:.1f}" fill="{_BAR}"/>'
        )
    return bars


def _svg(parts: Sequence[str], highest: str, last: str) -> str:
    base = _TOP + _inner_height()
    axes = [
        f'<path d="M{_LEFT} {_TOP}V{base}H{_WIDTH}" fill="none" stroke="{_AXIS}"/>',
        f'<text x="{_LEFT}" y="{_TOP - 6}" font-size="12" fill="{_AXIS}">{highest}</text>',
        f'<text x="{_WIDTH}" y="{base + 16}" font-size="12" text-anchor="end" '
        f'fill="{_AXIS}">{last}</text>',
        f'<text x="{_LEFT}" y="{base + 16}" font-size="12" fill="{_AXIS}">0</text>',
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}">'
    ground = f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>'
    return "\n".join([head, ground, *parts, *axes, "</svg>"]) + "\n"


def _inner_height() -> int:
    return _HEIGHT - _TOP - _BOTTOM


def _x(at: float, seconds: float) -> float:
    return _LEFT + at / max(seconds, 1e-9) * (_WIDTH - _LEFT)
