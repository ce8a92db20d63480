"""Plays programs on two servers, finds the first difference, and shortens the program to it."""

from __future__ import annotations

import itertools
import re
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from .player import Note, Player
from .programs import clients_of, program
from .servers import Address
from .steps import Step

Transcript = list[list[Note]]
#: No more tries than this to shorten a program: each is a run on both servers.
TRIES_MAX = 300
#: How often a program is played again to see which server changed its mind.
PLAYS_AGAIN = 3


class Difference(NamedTuple):
    """Where two transcripts part; `place` 0 is the beginning, n the n-th step."""

    place: int
    notes: dict[str, list[Note]]


class Comparison:
    """Two servers and the programs played on both, one after another."""

    def __init__(self, servers: dict[str, Address]) -> None:
        self.servers = servers
        self.run = uuid.uuid4().hex[:6]
        self.numbers = itertools.count(1)
        self.pool = ThreadPoolExecutor(len(servers))
        self.notes = self.once = 0

    def play(self, steps: list[Step], clients: int) -> dict[str, Transcript]:
        """Play the steps on both servers at once."""
        root = f"/p{next(self.numbers):06}-{self.run}"
        plays = {
            name: self.pool.submit(Player(address, root, clients).play, steps)
            for name, address in self.servers.items()
        }
        transcripts = {name: play.result() for name, play in plays.items()}
        self.notes += sum(map(len, next(iter(transcripts.values()))))
        return transcripts

    def difference(self, steps: list[Step], clients: int) -> Difference | None:
        """The first difference between both servers."""
        return first_difference(self.play(steps, clients))

    def shortest(self, steps: list[Step], clients: int) -> list[Step]:
        """The steps without those that the difference does not need."""
        tries = 0
        size = max(1, len(steps) // 2)
        while tries < TRIES_MAX:
            at, shorter = 0, False
            while at < len(steps) and tries < TRIES_MAX:
                fewer = steps[:at] + steps[at + size :]
                tries += 1
                if self.difference(fewer, clients):
                    steps, shorter = fewer, True
                else:
                    at += size
            if size == 1 and not shorter:
                break
            size = max(1, size // 2)
        return steps

    def report(self, seed: int) -> str | None:
        """None where the servers agree on a seed's program; else all one needs to see it."""
        steps, clients = program(seed), clients_of(seed)
        transcripts = self.play(steps, clients)
        found = first_difference(transcripts)
        if found is None:
            return None
        if self.real_server_was_odd(steps, clients, transcripts):
            self.once += 1
            return None
        # What was after the difference is not needed, at least.
        shorter = self.shortest(steps[: found.place], clients)
        again = self.difference(shorter, clients)
        if again is None:
            return "\n".join([f"seed {seed}: the servers differed once", *shown(steps, found)])
        return "\n".join([f"seed {seed}: the servers differ", *shown(shorter, again)])

    def real_server_was_odd(
        self, steps: list[Step], clients: int, before: dict[str, Transcript]
    ) -> bool:
        """Whether the reference, played again, says what the other server said at once.

        ZooKeeper's threads race: it forgets a close or writes the end of a session twice, about
        once in a thousand programs. The other server must be the same in every play.
        """
        reference, other = before
        for _ in range(PLAYS_AGAIN):
            again = self.play(steps, clients)
            if again[other] != before[other] or again[reference] != before[other]:
                return False
        return True


def first_difference(transcripts: dict[str, Transcript]) -> Difference | None:
    """The first step after which clients received different things."""
    rows = itertools.zip_longest(*transcripts.values(), fillvalue=[("nothing",)])
    for index, row in enumerate(rows):
        if any(notes != row[0] for notes in row[1:]):
            return Difference(index, dict(zip(transcripts, row, strict=True)))
    return None


def shown(steps: list[Step], difference: Difference) -> list[str]:
    """The steps and both answers, as lines."""
    lines = [f"  {number}. {shortened(step)}" for number, step in enumerate(steps, 1)]
    lines.append(f"after step {difference.place}:")
    names = list(difference.notes)
    for notes in itertools.zip_longest(*difference.notes.values()):
        if any(note != notes[0] for note in notes[1:]):
            pairs = zip(names, notes, strict=True)
            lines += [f"  {name:<9} {shortened(note)}" for name, note in pairs]
        else:
            lines.append(f"  both      {shortened(notes[0])}")
    return lines


def shortened(value: object) -> str:
    """Its text without what is the same in most and with long runs counted."""
    text = repr(value).replace(", cut=0", "").replace("((31, 'world', 'anyone'),)", "OPEN")
    return re.sub(r"(.|\\x00\\xff|\\x00)\1{20,}", lambda run: f"{run[1]}...", text)


class Outcome(NamedTuple):
    """What the comparison of some seeds found."""

    reports: list[str]
    programs: int
    notes: int
    odd: int
    took_s: float

    def __str__(self) -> str:
        return (
            f"{self.programs} programs, {self.notes} answers and events compared,"
            f" {len(self.reports)} programs with a difference"
            f" ({self.odd} more where only ZooKeeper changed its mind), {self.took_s:.0f} s"
        )


def compare(servers: dict[str, Address], seeds: range, most: int = 5) -> Outcome:
    """Play the programs of the seeds on both servers, until `most` reports are written."""
    comparison = Comparison(servers)
    reports: list[str] = []
    began = time.monotonic()
    done = 0
    for seed in seeds:
        done += 1
        try:
            report = comparison.report(seed)
        except OSError as error:
            reports.append(f"seed {seed}: a server has ended: {error}")
            break
        if report:
            reports.append(report)
            if len(reports) >= most:
                break
    took = time.monotonic() - began
    return Outcome(reports, done, comparison.notes, comparison.once, took)
