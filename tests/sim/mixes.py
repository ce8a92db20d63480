"""Mixes in which what a mutant needs is frequent, for mutants that other mixes find too late."""

from __future__ import annotations

import random

from .mix import Mix, draw_mix


def retried(rng: random.Random) -> Mix:
    """Many retries and late copies, and little that keeps them apart: else one seed in 10 000."""
    mix = draw_mix(rng)
    faults = mix.faults._replace(late=0.12, full=0.0)
    return mix._replace(faults=faults, retries=4, failing=0.4, pauses=0, wide=0)


def expiring(rng: random.Random) -> Mix:
    """Many sessions end, and each task is committed by itself."""
    return draw_mix(rng)._replace(expiries=4, ahead=0.0, wide=0)


def wide_joins(rng: random.Random) -> Mix:
    """All joins are wide, and authors add to their plans while workers finish them."""
    mix = draw_mix(rng)._replace(narrow=True, more=2, slow=0.0, claims_directly=True, wide=0)
    mix = mix._replace(author_crashes=0, expiries=0, crashes=0, pauses=0, retries=0, removes=0)
    return mix._replace(adds=0.0, failing=0.0)


def grown_meanwhile(rng: random.Random) -> Mix:
    """Tasks are run in one go while authors add to their plan, and little else happens."""
    mix = draw_mix(rng)._replace(ahead=0.9, more=4, slow=0.3, adds=0.0, failing=0.0, wide=0)
    return mix._replace(expiries=0, crashes=0, pauses=0, retries=0, removes=0)
