"""Broken variants of retention: the simulation must find each (`mutants.py`)."""

from __future__ import annotations

from zkplan.protocol.features import bounds

from . import broken_store
from .mutant import Mutant, only

MUTANTS = only(
    lambda world: world.expires,
    Mutant(
        "retention that removes a plan that runs",
        patches=((bounds, "ended_at", lambda ready, done: ("done", 0.0)),),
    ),
    Mutant(
        "retention that asks for no claims",
        patches=((bounds, "names_on_claims_nodes", broken_store.no_claims),),
    ),
)
