"""What the seed decides first: the faults and features of a run, and how narrow its limits are."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, NamedTuple

from zkplan.protocol.core import add as staged
from zkplan.protocol.core import repeatable_adds as wide_join
from zkplan.protocol.core import wide_adds
from zkplan.protocol.features import author as authoring
from zkplan.protocol.features import retry as reopen

from .network import Faults

#: A module or a class, the name of one of its attributes, and what stands there instead.
Patch = tuple[ModuleType | type, str, Any]


class Mix(NamedTuple):
    """Which features and faults a run has, as probabilities where they are looked up often."""

    faults: Faults
    expiries: int
    crashes: int
    author_crashes: int
    leaves: int
    spurious: float
    hand_back: float
    logs: float
    failing: float
    wide: int
    claims_directly: bool
    adds: float
    pauses: int
    retries: int
    removes: int
    more: int
    narrow: bool
    ahead: float
    lateness: float
    slow: float
    decisions: int
    handlers: float


#: Limits of the protocol that small plans reach only when they are this small: small batches and
#: small joins meet the limits of large ones.
NARROW = (
    (authoring, "BATCH_OPS", 14),
    (wide_join, "EDGES_PER_MULTI", 1),
    (wide_join, "EDGES_PER_STEP", 1),
    (reopen, "GROUP_OPS_MAX", 6),
    (staged, "GROUP_BYTES_MAX", 1),
    (wide_adds, "GROUP_BYTES_MAX", 1),
    (wide_adds, "_GO", 1),
)


@contextmanager
def replaced(patches: Iterable[Patch]) -> Iterator[None]:
    """These attributes of modules are other ones within the block."""
    with ExitStack() as stack:
        for module, name, instead in patches:
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, instead)
        yield


def draw_mix(rng: random.Random) -> Mix:
    """Some features at a time: rare meetings of two of them need the others out of the way."""

    def some(value: float, share: float = 0.5) -> float:
        return value if rng.random() < share else 0.0

    strength = rng.choice((0.0, 0.02, 0.05, 0.12))
    failing = some(rng.choice((0.15, 0.4)), 0.35)
    faults = Faults(some(strength), some(strength), some(strength), some(0.2, 0.2))
    if faults.full:
        # A leader refuses the late copy of what it has answered another server for (session moved).
        # Any other reason to refuse holds for the copy too, or its sender looks for what it made
        # (`late_copies`), or its entry gets another name (`claim.rename_blocked`).
        faults = faults._replace(late=0.0)
    return Mix(
        faults=faults,
        expiries=rng.choice((0, 0, 1, 2, 4)),
        crashes=rng.choice((0, 0, 1, 2)),
        author_crashes=int(some(1, 0.1)),
        leaves=int(some(1, 0.2)),
        spurious=some(0.05, 0.2),
        hand_back=some(0.1, 0.25),
        logs=some(0.15, 0.2),
        failing=failing,
        wide=rng.choice((0, 0, 0, 1, 2)),
        claims_directly=rng.random() < 0.7,
        adds=some(0.3, 0.2),
        pauses=int(some(rng.randint(1, 2), 0.3)),
        retries=rng.choice((0, 2, 4)) if failing else 0,
        removes=int(some(1, 0.05)),
        more=int(some(rng.randint(1, 2), 0.35)),
        narrow=rng.random() < 0.3,
        ahead=some(0.7, 0.4),
        lateness=rng.choice((0.1, 0.02)),
        slow=some(0.3, 0.4),
        decisions=int(some(rng.randint(1, 5), 0.3)),
        handlers=some(0.4, 0.3),
    )
