"""S13 of what tasks print: told under the claim of the attempt, and at its end the last of it.

In some runs. What an attempt prints follows from its claim, so a judge of its own knows it.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from zkplan.protocol.core import claim as running
from zkplan.protocol.history.segments import Record
from zkplan.protocol.layout import parse_lease
from zkplan.protocol.requests import Fact, Printed
from zkplan.protocol.transactions import Claim

from .story import Violation
from .transaction import CLEARS, Transaction

if TYPE_CHECKING:
    from .world import World

#: The share of runs in which tasks print, and of steps after which a running one is told of.
SHARE, TELLS = 0.15, 0.1
#: The kind of the fibers that tell of running tasks.
PRINTS = "print"
_LETTERS = "abcdefghijklmnopqrstuvwxyzäöü"


class Printing:
    """What the attempts of one run print."""

    def __init__(self, world: World, seed: int) -> None:
        self._world, self._rng = world, random.Random(f"printing {seed}")
        self.prints = self._rng.random() < SHARE
        #: By the path of its claim what each attempt that has run has printed, and up to where the
        #: history tells it.
        self.texts: dict[str, str] = {}
        self.told: dict[str, int] = {}
        world.auditor.history.printing = self

    def ran(self, claim: Claim) -> None:
        """The function of this claim has run. What has no session may be taken on by another."""
        if not self.prints or parse_lease(claim.path.split("/")[-2]) is not None:
            return
        text = "".join(random.Random(claim.path).choices(_LETTERS, k=20))
        self.texts[claim.path] = text
        claim.fact = Fact(printed=Printed(0, text))

    def storm(self) -> None:
        """Now and then a worker tells of a task whose attempt has not ended yet."""
        if not self.prints or self._rng.random() >= TELLS:
            return
        running_now = [
            (worker, part.loaded.claim)
            for worker in self._world.workers
            for part in worker.finished
            if part.loaded.claim.path in self.texts
        ]
        if not running_now:
            return
        worker, claim = self._rng.choice(running_now)
        text = self.texts[claim.path]
        start = self._rng.randrange(10)
        some = Printed(len(text[:start].encode()), text[start : start + self._rng.randint(1, 10)])
        self._world.network.start(worker.client, PRINTS, running.record_printed(claim, some), {})

    def judge(self, made: Transaction, plan: str, record: Record, nodes: Any) -> None:
        """One transaction, and what it tells."""
        for letter, task, *rest in [each for each in record.events if each[0] == "p"]:
            claim = made.claims.get(f"{plan}/task-{task:010d}", "")
            n, at, text, worker = [*rest, record.by][:4]
            if claim.split("/")[-2:-1] != [worker] or claim.split(".")[-2:-1] != [str(n)]:
                raise Violation(f"S13 {letter} of {task} is told by {worker} for {n}, not {claim}")
            data = text.encode()
            if self.texts.get(claim, "").encode()[at : at + len(data)] != data:
                raise Violation(f"S13 {claim} has not printed {text!r} at {at}")
            self.told[claim] = max(self.told.get(claim, 0), at + len(data))
        if made.fiber.kind in (CLEARS, "decide", "remove", "expire"):
            return  # others end it, who do not know what it has printed
        for task_path, claim in made.claims.items():
            of_plan = task_path.startswith(f"{plan}/") and claim in self.texts
            if not of_plan or claim in nodes:
                continue
            if self.told.get(claim, 0) < len(self.texts[claim].encode()):
                raise Violation(f"S13 {claim} has ended, and what it printed last is not told")
