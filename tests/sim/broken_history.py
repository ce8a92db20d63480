"""Broken ways to keep a history; S13 must find each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from zkplan.protocol.core import end_claims as ending
from zkplan.protocol.core.commit_part import Part
from zkplan.protocol.history import compaction
from zkplan.protocol.history import events as telling
from zkplan.protocol.history import segments as history
from zkplan.protocol.history.segments import Record, Recorder, _Recorded
from zkplan.protocol.layout import UPDATE, parse_lease
from zkplan.protocol.requests import Check, Create, Multi, Op
from zkplan.protocol.transactions import Claim

from .mutant import Mutant, only, without
from .printing import PRINTS

_event, _build, _merged = telling._event, _Recorded.build, history.merged_to_bytes
_events, _ending = telling.EventDeriver.events, ending._ending


def _without(letter: str) -> Callable[..., Any]:
    def broken(*arguments: Any) -> Any:
        event = _event(*arguments)
        return None if event is not None and event[0] == letter else event

    return broken


def _of_leases(letter: str, change: Callable[[list[Any]], object]) -> Callable[..., Any]:
    def broken(*arguments: Any) -> Any:
        event = _event(*arguments)
        if event is not None and event[0] == letter and parse_lease(arguments[0].worker):
            change(event)
        return event

    return broken


def _told_as_handed_back(event: list[Any]) -> None:
    event[0] = "h"


def _end_without_what_it_printed(claim: Claim, *more: Any) -> Any:
    ended = _ending(claim, *more)
    ended.fact = ended.fact._replace(printed=None)
    return ended


def _part_without_what_it_printed(part: Any) -> Any:
    return part.loaded.claim.fact._replace(printed=None)


def _twice(recorded: Any) -> None:
    _build(recorded)
    ops = recorded.multi.ops
    if ops and isinstance(ops[-1], Create) and ops[-1].path.endswith("/seg-"):
        recorded.multi = Multi([*ops, ops[-1]])


_final = Recorder._final


def _given_up_once_shut(self: Recorder, recorded: _Recorded, answer: Any) -> Any:
    answer = yield from _final(self, recorded, answer)
    for number in recorded.untold.difference(number for number, _ in recorded.segments):
        self.leave_out(number)
    return answer


def _without_updates(teller: Any, ops: Sequence[Op], *more: Any) -> Any:
    is_update = f"/add-ids/{UPDATE}" in ops[0].path
    return iter(()) if is_update else _events(teller, ops, *more)


def _without_moves_of_waiting_tasks(move: Any, *more: Any) -> Any:
    return None if move.rank and not move.place else _event(move, *more)


def _merging(change: Callable[[list[Record]], Sequence[Record]]) -> Callable[..., bytes]:
    return lambda records: _merged(change(list(records)))


def _reordered(records: list[Record]) -> list[Record]:
    numbers = [record.number for record in records]
    last_first = reversed(records)
    return [each._replace(number=n) for n, each in zip(numbers, last_first, strict=True)]


def _merge(name: str, change: Callable[[list[Record]], Sequence[Record]]) -> Mutant:
    return Mutant(name, patches=((compaction, "merged_to_bytes", _merging(change)),))


def _lease(name: str, letter: str, change: Callable[[list[Any]], object]) -> Mutant:
    broken = _of_leases(letter, change)
    return Mutant(name, patches=((telling, "_event", broken),))


OF_HISTORY = tuple(
    replace(mutant, of_history=True)
    for mutant in (
        Mutant("a claim that is not told", patches=((telling, "_event", _without("c")),)),
        Mutant("a hand-back that is not told", patches=((telling, "_event", _without("h")),)),
        Mutant("a release that is not recorded", patches=((telling, "_event", _without("l")),)),
        Mutant("a decision that is not told", patches=((telling, "_event", _without("o")),)),
        Mutant(
            "a move of a waiting task that is not recorded",
            patches=((telling, "_event", _without_moves_of_waiting_tasks),),
        ),
        Mutant("a transaction that is told twice", patches=((_Recorded, "build", _twice),)),
        _merge("a merge that drops a transaction", lambda records: records[1:]),
        _merge("a merge that doubles a transaction", lambda records: [records[0], *records]),
        _merge("a merge that changes the order", _reordered),
        *only(
            lambda world: world.merging.printing.prints,
            Mutant(
                "print recorded without the claim",
                without(lambda fiber, op: fiber.kind == PRINTS and type(op) is Check),
            ),
            Mutant(
                "failure that loses what was printed",
                patches=((ending, "_ending", _end_without_what_it_printed),),
            ),
            Mutant(
                "commit that loses what was printed",
                patches=((Part, "fact", property(_part_without_what_it_printed)),),
            ),
        ),
        *only(
            lambda world: world.network.faults.shut > 0,
            Mutant(
                "a history given up because it was shut once",
                patches=((Recorder, "_final", _given_up_once_shut),),
            ),
        ),
        *only(
            lambda world: world.leases is not None,
            _lease("a lease's claim told without the lease", "c", list[Any].pop),
            _lease("a lease's completion told without the lease", "k", list[Any].pop),
            _lease("a lapse recorded as a hand-back", "l", _told_as_handed_back),
            Mutant(
                "an update that is not recorded",
                patches=((telling.EventDeriver, "events", _without_updates),),
            ),
        ),
    )
)
