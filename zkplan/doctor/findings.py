"""What a check has found, and what to do about it."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Finding(NamedTuple):
    """One finding. A problem keeps zkplan from working, or lets in whom it should not."""

    check: str
    state: Literal["ok", "note", "problem"]
    told: str
    #: What to do; empty if nothing has to be done.
    todo: str = ""


def ok(check: str, told: str) -> Finding:
    return Finding(check, "ok", told)


def note(check: str, told: str, todo: str) -> Finding:
    return Finding(check, "note", told, todo)


def problem(check: str, told: str, todo: str) -> Finding:
    return Finding(check, "problem", told, todo)
