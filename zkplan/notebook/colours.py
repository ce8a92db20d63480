"""The colours of states in a notebook: readable on a light and on a dark ground, beside words."""

from __future__ import annotations

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
