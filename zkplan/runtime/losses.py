"""What a worker tells of claims that it lost, a line for each task, or gave back by itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ..protocol.load import Loaded
from ..protocol.shared import Claim
from ..text import count
from .job import Job
from .statistics import Counters

logger = logging.getLogger("zkplan.worker")

#: What was to come of a claim that is gone.
UNSTARTED = "it is not run here"
RESULT = "its result is refused"
FAILURE = "its failure is refused"
HAND_BACK = "it is not handed back"

#: What a worker says for each time that it hands claims back unasked; `zkplan stress` counts these.
HANDED_BACK = "waited behind tasks that hold all slots"


class Losses:
    """Counts the claims that were lost, and tells of each."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def lost(self, job: Job, what: str) -> None:
        """The claim of a task is gone."""
        self._tell(job.claim, job.options.name, what)

    def before_start(self, claims: list[Claim], loaded: list[Loaded]) -> None:
        """Those of `claims` that were gone when their tasks were loaded."""
        if len(loaded) < len(claims):
            arrived = {item.claim.path for item in loaded}
            for claim in claims:
                if claim.path not in arrived:
                    self._tell(claim, "", UNSTARTED)

    def if_lost(self, job: Job, what: str) -> Callable[[bool], None]:
        """For the end of a step that says whether the claim was still held."""
        return lambda held: None if held else self.lost(job, what)

    def if_fewer(self, jobs: Sequence[Job]) -> Callable[[int], None]:
        """For the end of a hand-back, which says how many of the claims were still held."""

        def told(held: int) -> None:
            if held == len(jobs):
                return
            if len(jobs) == 1:
                self.lost(jobs[0], HAND_BACK)
                return
            self._counters.fenced += len(jobs) - held
            many = count(len(jobs) - held, "claim")
            logger.info("lost %s of %d that were to be handed back", many, len(jobs))

        return told

    def _tell(self, claim: Claim, name: str, what: str) -> None:
        self._counters.fenced += 1
        number = f"task-{claim.task}"
        label = f"{name} ({number})" if name not in ("", number) else number
        # A lost answer can hide that this worker's own commit ended the claim: not always a loss.
        logger.log(
            logging.INFO if what is UNSTARTED else logging.WARNING,
            "lost the claim of %s of %s, attempt %d, so %s: another worker took it over, the plan "
            "was removed, or an earlier copy of the same transaction was applied",
            label,
            claim.plan_path,
            claim.n,
            what,
        )
