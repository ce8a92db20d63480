"""Why a claim does not stand any more, for the program that believed in it."""

from __future__ import annotations

from collections.abc import Sequence

from ..protocol.layout import Paths, parse_claim
from ..protocol.load import read_all
from ..protocol.requests import ReadData, Step
from .leased import ClaimId, Refusal

UNKNOWN = "it is no ID of a claim: such an ID is what a claim call has answered"


def why_lost(paths: Paths, ids: Sequence[ClaimId]) -> Step[list[tuple[Refusal, str]]]:
    """For each claim that does not stand: in short, and for people."""
    claims = [parse_claim(each.name) for each in ids]
    reads = []
    for claim in claims:
        if claim is not None:
            plan, task = paths.plan(claim.plan), paths.task(claim.plan, claim.task)
            letter = f"{plan}/dead/{claim.task}"
            reads += [ReadData(path) for path in (plan, task, f"{task}/result", letter)]
    nodes = iter((yield from read_all(reads)))
    found: list[tuple[Refusal, str]] = []
    for each, claim in zip(ids, claims, strict=True):
        if claim is None:
            found.append(("lapsed", UNKNOWN))
            continue
        plan, task, result, letter = (next(nodes) for _ in range(4))
        named = f"task {int(claim.task)} of plan {int(claim.plan)}"
        if plan is None:
            found.append(("removed", f"plan {int(claim.plan)} was removed"))
        elif task is None:
            told = "has ended: this claim has completed it before, or another or an operator has"
            found.append(("ended", f"{named} {told}"))
        elif result is not None:
            found.append(("ended", f"an operator has decided the outcome of {named}"))
        elif letter is not None:
            found.append(("ended", f"{named} has failed for good"))
        else:
            told = f"does not stand any more ({each.lease} has lapsed, or this claim has ended)"
            text = f"claim {claim.n} of {named} {told}: the task was given back, and runs again"
            found.append(("lapsed", text))
    return found
