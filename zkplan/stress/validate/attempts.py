"""Check the attempt numbers of the executions of each task: S8. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from ..history import Execution
from .evidence import Evidence


def attempts_are_unique(evidence: Evidence[Execution]) -> Iterator[str]:
    """S8: no two executions of a task have the same attempt number."""
    for key, runs in evidence.executions.items():
        for n, count in Counter(each.n for each in runs).items():
            if count > 1:
                yield f"task {key} was executed {count} times as attempt {n}"


def only_losses_and_failures_repeat(evidence: Evidence[Execution]) -> Iterator[str]:
    """S8: a task runs again only after a failure, a lost worker, or a hand-back."""
    for runs in evidence.executions.values():
        for first, second in pairwise(sorted(runs, key=lambda each: each.n)):
            if not first.raised and not evidence.may_be_lost(first, second.began):
                yield f"{second} repeats {first}, which nothing had disturbed"
