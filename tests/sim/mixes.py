"""Mixes in which what a mutant needs is frequent, for mutants that other mixes find too late."""

from __future__ import annotations

import random

from .mix import Mix, draw_mix
from .network import CALM


def retried(rng: random.Random) -> Mix:
    """Many retries and late copies, and little that keeps them apart."""
    mix = draw_mix(rng)
    faults = mix.faults._replace(lost=0.0, mute=0.0, late=0.2, full=0.0)
    mix = mix._replace(faults=faults, retries=8, failing=0.5, lateness=0.02)
    return mix._replace(pauses=0, decisions=0, wide=0)


def told_of_failures(rng: random.Random) -> Mix:
    """Many tasks die, are retried, and have dependents that take failures as arguments."""
    return draw_mix(rng)._replace(failing=0.4, retries=4, handlers=0.4)


def told_widely(rng: random.Random) -> Mix:
    """Many tasks die, and their dependents get the failures in several transactions."""
    mix = told_of_failures(rng)._replace(failing=0.6, handlers=0.6, retries=8, ahead=0.0)
    return mix._replace(wide=2, expiries=4, adds=0.0, more=0, decisions=0, removes=0, slow=0.0)


def dying(rng: random.Random) -> Mix:
    """Nothing is lost. Most tasks die, and tasks are added that wait for them."""
    mix = draw_mix(rng)._replace(failing=0.7, handlers=0.6, adds=0.5, ahead=0.0, retries=0)
    mix = mix._replace(expiries=0, crashes=0, author_crashes=0, pauses=0, decisions=0, removes=0)
    return mix._replace(faults=CALM, wide=0)


def expiring(rng: random.Random) -> Mix:
    """Many sessions end, and each task is committed by itself."""
    return draw_mix(rng)._replace(expiries=4, ahead=0.0, wide=0)


def expiring_while_slow(rng: random.Random) -> Mix:
    """Sessions end while what their workers sent waits on, and comes after others went on."""
    return expiring(rng)._replace(slow=0.3, pauses=0, claims_directly=True)


def left_pending(rng: random.Random) -> Mix:
    """Who has committed is gone before it publishes, while authors add dependents."""
    return draw_mix(rng)._replace(crashes=2, expiries=4, more=4, claims_directly=False)


def paused_meanwhile(rng: random.Random) -> Mix:
    """Tasks are run in one go while their plan is paused, and little else happens."""
    mix = draw_mix(rng)._replace(pauses=4, ahead=0.9, failing=0.0, wide=0)
    return mix._replace(expiries=0, crashes=0)


def late_copies(rng: random.Random) -> Mix:
    """Many copies stay in the network, and come after what was sent later."""
    mix = draw_mix(rng)
    return mix._replace(faults=mix.faults._replace(late=0.12, full=0.0))


def mostly_late(rng: random.Random) -> Mix:
    """Copies come late, and there is no other fault."""
    mix = draw_mix(rng)._replace(lateness=0.1, expiries=0, crashes=0, wide=0)
    return mix._replace(faults=CALM._replace(late=0.3))


def wide_joins(rng: random.Random) -> Mix:
    """All joins are wide, and authors add to their plans while workers finish them."""
    mix = draw_mix(rng)._replace(narrow=True, more=2, slow=0.0, claims_directly=True, wide=0)
    mix = mix._replace(author_crashes=0, expiries=0, crashes=0, pauses=0, retries=0, removes=0)
    return mix._replace(adds=0.0, failing=0.0)


def grown_meanwhile(rng: random.Random) -> Mix:
    """Tasks are run in one go while authors add to their plan, and little else happens."""
    mix = draw_mix(rng)._replace(ahead=0.9, more=4, slow=0.3, adds=0.0, failing=0.0, wide=0)
    return mix._replace(expiries=0, crashes=0, pauses=0, retries=0, removes=0)


def decided_meanwhile(rng: random.Random) -> Mix:
    """Answers are lost while operators decide about tasks, and little else happens."""
    mix = draw_mix(rng)
    faults = mix.faults._replace(lost=0.0, mute=0.3, late=0.0, full=0.0)
    mix = mix._replace(faults=faults, decisions=12, slow=0.3, ahead=0.0, wide=0)
    return mix._replace(expiries=0, crashes=0, removes=0)


def growing(rng: random.Random) -> Mix:
    """Functions add tasks, wide deliveries commit them, and workers are lost meanwhile."""
    mix = draw_mix(rng)._replace(adds=0.7, wide=1, narrow=rng.random() < 0.7, failing=0.0, more=0)
    return mix._replace(expiries=rng.choice((0, 2, 4)), crashes=rng.choice((0, 2)), pauses=0)


def reopened(rng: random.Random) -> Mix:
    """Plans end with failures, and several people retry them at once."""
    mix = draw_mix(rng)
    mix = mix._replace(failing=0.4, retries=8, more=rng.choice((0, 2)), narrow=rng.random() < 0.6)
    return mix._replace(faults=mix.faults._replace(full=0.0), decisions=0)


def reopened_late(rng: random.Random) -> Mix:
    """As `reopened`, and copies of what was sent come late."""
    mix = reopened(rng)._replace(lateness=0.02, expiries=0, crashes=0, wide=0, adds=0.0)
    return mix._replace(faults=mix.faults._replace(late=0.25), narrow=False)
