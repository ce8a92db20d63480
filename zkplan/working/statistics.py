"""What a worker did, in counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Statistics:
    """What a worker did since it started; counts of tasks unless said otherwise."""

    executed: int = 0
    committed: int = 0
    fenced: int = 0
    failed: int = 0
    handed_back: int = 0
    conflicts: int = 0
    refusals: int = 0
    steps: int = 0
    looks: int = 0
    released: int = 0
    #: Functions that never returned: timed out, or still running when the worker stopped.
    written_off: int = 0
