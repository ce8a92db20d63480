"""What broken variants of stores do: the simulation must find each (`mutants.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zkplan.protocol import commit as committing
from zkplan.protocol.commit import commit
from zkplan.store import compare, end

from . import mixes, store
from .broken_runs import Answers
from .mutant import Mutant
from .story import STORED


def send_first(write: Answers, send: Callable[[], None]) -> Answers:
    """The reference is sent before the blob is written."""
    send()
    yield from write


def delete_with_the_first_consumer(*arguments: Any) -> Answers:
    """Whoever commits a task deletes the blobs of its arguments."""
    report = yield from commit(*arguments)
    for part in report.done:
        names = [data[1:].decode() for data in part.loaded.arguments if data[:1] == STORED]
        yield store.DeleteBlobs(part.loaded.claim.plan, names)
    return report


def sweep_all(names: Any, _kept: object) -> list[str]:
    return list(names)


def no_claims(*_: Any, **__: Any) -> Answers:
    yield from ()
    return []


#: Of values in a store. The first two change the store of the simulation; those of real processes
#: are in tests/chaos/traffic/mutated.py.
OF_STORE = (
    Mutant(
        "reference before its blob",
        patches=((store, "write_first", send_first),),
        needs=lambda world: world.has_store,
        mix=mixes.late_copies,
    ),
    Mutant(
        "blob deleted with its first consumer",
        patches=((committing, "commit", delete_with_the_first_consumer),),
    ),
    Mutant("sweep that deletes kept results", patches=((end, "swept", sweep_all),)),
    Mutant(
        "check of blobs without the claims",
        patches=((compare, "names_on_claims_nodes", no_claims),),
    ),
)
