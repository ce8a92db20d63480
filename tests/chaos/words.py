"""Numbers with their nouns, for those who read."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """`1 fault`, `2 faults`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
