"""What broken variants of stores do: the simulation must find each (`mutants.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zkplan.protocol.core import commit as committing
from zkplan.protocol.core.commit import commit
from zkplan.protocol.history import compaction
from zkplan.protocol.history.compaction import Oldest
from zkplan.protocol.history.segments import history_path
from zkplan.protocol.requests import Multi, SetData
from zkplan.values import check_blobs as compare
from zkplan.values import store_maintenance as end

from . import merging, mixes, store
from .broken_runs import Answers
from .mutant import Mutant
from .story import STORED, outcomes_in


def send_first(write: Answers, send: Callable[[], None]) -> Answers:
    """The reference is sent before the blob is written."""
    send()
    yield from write


def delete_with_the_first_consumer(*arguments: Any) -> Answers:
    """Whoever commits a task deletes the blobs of its arguments."""
    report = yield from commit(*arguments)
    for part in report.done:
        names = [data[1:].decode() for data in outcomes_in(part.loaded) if data[:1] == STORED]
        yield store.DeleteBlobs(part.loaded.claim.plan, names)
    return report


def sweep_all(names: Any, _kept: object) -> list[str]:
    return list(names)


def no_claims(*_: Any, **__: Any) -> Answers:
    yield from ()
    return []


def let_go_first(write: store.WriteBlob, let_go: Answers) -> Answers:
    """The znode is deleted before its part is written."""
    went = yield from let_go
    yield write
    return went


def told_and_not_deleted(plan_path: str, found: Oldest, stored: str) -> Answers:
    """The history tells of the part, and its znode stays: so it is read twice."""
    cut = found.cut._replace(events=found.cut.events + found.events, stored=stored)
    yield Multi([SetData(history_path(plan_path), cut.to_bytes(), found.version)])
    return False


#: Of values in a store. The first three change steps of the simulation; those of real processes are
#: in tests/chaos/traffic/mutated.py.
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
    Mutant(
        "part of a history deleted before it is written",
        patches=((merging, "write_and_let_go", let_go_first),),
        needs=lambda world: world.merging.keeps,
        of_history=True,
    ),
    Mutant(
        "sweep that deletes parts of a history",
        patches=((end, "HISTORY", "nothing"),),
        needs=lambda world: world.merging.keeps,
        of_history=True,
    ),
    Mutant(
        "part of a history that is in the store and in the tree",
        patches=((compaction, "let_go", told_and_not_deleted),),
        needs=lambda world: world.merging.keeps,
        of_history=True,
    ),
    Mutant("sweep that deletes kept results", patches=((end, "swept", sweep_all),)),
    Mutant(
        "check of blobs without the claims",
        patches=((compare, "names_on_claims_nodes", no_claims),),
    ),
)
