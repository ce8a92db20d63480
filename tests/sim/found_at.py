"""Where the search for a mutant begins, for those that it would find late from 0 on."""

from __future__ import annotations

#: By the name of the mutant, a seed that has found it. The simulation still has to find it there.
#: Where it does not, because the simulation has changed and a seed means another run, the search
#: goes on with all seeds from 0: then put down here the seed that it tells.
FOUND_AT = {
    "batch of claims known by its first one": 92,
    "claim without check of workers/ID": 92,
    "clearer without guard": 42,
    "commit fenced by owner only": 150,
    "edge on a task of the same commit": 3,
    "fenced run that goes on": 123,
    "gate opened at any version": 129,
    "gate opened without a check of its znode": 129,
    "gate retried as any task": 182,
    "gates made when they are missed": 5527,
    "index entry without a new version of ready": 530,
    "key moved without compare": 852,
    "permit left behind by a decide": 147,
    "permit left behind by a hand back": 186,
    "permit of a rate at any version": 96,
    "permits above the size not counted": 606,
    "publish without compare-and-set": 116,
    "reference before its blob": 89,
    "refused repetition taken as fenced": 291,
    "removal that deletes results early": 3511,
    "retry without its witness": 43,
    "run that takes new edges with it": 1692,
    "run that writes to the store": 4693,
    "run without check of the plan": 123,
    "wide delivery that loses adds": 89,
    "wide join that settles all its positions": 597,
}
