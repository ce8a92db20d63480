"""What a worker tells of claims that it lost, a line for each task, or gave back by itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..protocol.load import Loaded
from ..protocol.shared import Claim
from ..text import count

if TYPE_CHECKING:
    from .execution import Job
    from .loop import Loop

logger = logging.getLogger("zkplan.worker")

#: What was to come of a claim that is gone.
UNSTARTED = "it is not run here"
RESULT = "its result is refused"
FAILURE = "its failure is refused"
HAND_BACK = "it is not handed back"

#: What a worker says for each time that it hands claims back unasked; `zkplan stress` counts these.
HANDED_BACK = "waited behind tasks that hold all slots"


def lost(loop: Loop, claim: Claim, what: str) -> None:
    """The claim of a task is gone; to be called before its job is ended, which has the name."""
    job = loop.claims.jobs.get(claim.path)
    _tell(loop, claim, (job.options.name if job is not None else "") or "", what)


def before_start(loop: Loop, claims: list[Claim], loaded: list[Loaded]) -> None:
    """Those of `claims` that were gone when their tasks were loaded."""
    if len(loaded) < len(claims):
        arrived = {item.claim.path for item in loaded}
        for claim in claims:
            if claim.path not in arrived:
                _tell(loop, claim, "", UNSTARTED)


def if_lost(loop: Loop, claim: Claim, what: str) -> Callable[[bool], None]:
    """For the end of a step that says whether the claim was still held."""
    job = loop.claims.jobs.get(claim.path)
    name = (job.options.name if job is not None else "") or ""
    return lambda held: None if held else _tell(loop, claim, name, what)


def if_fewer(loop: Loop, jobs: Sequence[Job]) -> Callable[[int], None]:
    """For the end of a hand-back, which says how many of the claims were still held."""

    def told(held: int) -> None:
        if held == len(jobs):
            return
        if len(jobs) == 1:
            _tell(loop, jobs[0].claim, jobs[0].options.name or "", HAND_BACK)
            return
        loop.statistics.fenced += len(jobs) - held
        many = count(len(jobs) - held, "claim")
        logger.info("lost %s of %d that were to be handed back", many, len(jobs))

    return told


def tell_handed_back(jobs: int, waited_s: float) -> None:
    """Claims that were never started go back, so that others can run them."""
    if jobs:
        logger.info("%s %s for %g s: handed back", count(jobs, "claim"), HANDED_BACK, waited_s)


def _tell(loop: Loop, claim: Claim, name: str, what: str) -> None:
    loop.statistics.fenced += 1
    number = f"task-{claim.task}"
    label = f"{name} ({number})" if name and name != number else number
    # A lost answer can hide that this worker's own commit ended the claim: not always a loss.
    logger.log(
        logging.INFO if what is UNSTARTED else logging.WARNING,
        "lost the claim of %s of %s, attempt %d, so %s: another worker took it over, the plan was "
        "removed, or an earlier copy of the same transaction was applied",
        label,
        claim.plan_path,
        claim.n,
        what,
    )
