"""Where the search for a mutant begins, for those that it would find late from 0 on."""

from __future__ import annotations

#: By the name of the mutant, a seed that has found it. The simulation still has to find it there.
#: Where it does not, because the simulation has changed and a seed means another run, the search
#: goes on with all seeds from 0: then put down here the seed that it tells.
FOUND_AT = {
    "batch of claims known by its first one": 2938,
    "check of blobs without the claims": 172,
    "claim without check of workers/ID": 969,
    "clearer without guard": 74,
    "commit fenced by owner only": 101,
    "completion without the fence": 762,
    "dead task that tells everybody": 174,
    "edge on a task of the same commit": 3,
    "fenced run that goes on": 3108,
    "gate opened at any version": 129,
    "gate opened without a check of its znode": 129,
    "gate retried as any task": 182,
    "gates made when they are missed": 5527,
    "index entry without a new version of ready": 333,
    "key moved without compare": 4121,
    "lease released at any version": 435,
    "mark of an update not read": 1369,
    "pending record cleared without publishing": 204,
    "permit left behind by a decide": 388,
    "permit left behind by a hand back": 186,
    "permit of a rate at any version": 96,
    "permit of an earlier size": 369,
    "permits above the size not counted": 1856,
    "publish without compare-and-set": 457,
    "queue lost in a hand-back": 675,
    "reference before its blob": 1032,
    "refused repetition of a decision taken as refused": 151,
    "refused repetition taken as fenced": 291,
    "removal that deletes results early": 3511,
    "renewal that tells what was": 88,
    "retry without its witness": 148,
    "run that takes new edges with it": 3990,
    "run without check of the plan": 323,
    "update in two transactions": 120,
    "update that does not check its demands": 2984,
    "wide delivery without its mark": 467,
    "wide join that settles all its positions": 597,
}
