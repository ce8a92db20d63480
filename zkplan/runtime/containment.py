"""What somebody else left in the tree stops the step that meets it, and nothing else; told once."""

from __future__ import annotations

import logging
from typing import TypeVar

from ..errors import UNREACHABLE, InvariantViolated, PayloadUndecodable, ZooKeeperError
from ..protocol.requests import Step

T = TypeVar("T")
D = TypeVar("D")
logger = logging.getLogger("zkplan.worker")

#: Messages remembered; beyond that some are told again.
TOLD_MAX = 1000


class Complaints:
    """Tells each message once, however often what it tells of is met."""

    def __init__(self) -> None:
        self._told: dict[str, None] = {}

    def tell(self, message: str) -> None:
        """Log a warning, unless this very one was logged before."""
        if message in self._told:
            return
        if len(self._told) >= TOLD_MAX:
            del self._told[next(iter(self._told))]
        self._told[message] = None
        logger.warning("%s", message)


def contained(step: Step[T], complaints: Complaints, what: str, instead: D) -> Step[T | D]:
    """Run `step`; where the tree is in its way, tell that of `what` and give `instead`.

    Otherwise one znode that zkplan did not make would end this worker, then the next one that meets
    it, and so all of them. A connection that is closed or silent is no matter of the tree.
    """
    try:
        return (yield from step)
    except UNREACHABLE:
        raise
    except (ZooKeeperError, PayloadUndecodable, InvariantViolated) as error:
        complaints.tell(f"{what}: {error}")
        return instead
