"""The one place where history is written: each transaction of each step tells what it does.

A step knows nothing of it. Its transactions are sent with one more operation for each plan that
they change, and it gets the answers to its own.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from .foreign import skip_number
from .history import history_path, segment_to_bytes
from .layout import SEGMENT, UNTOLD, number_of
from .requests import (
    Applied,
    Await,
    Create,
    Multi,
    Op,
    ReadMany,
    Reason,
    Refused,
    Send,
    SetData,
    Step,
    Ticket,
)
from .telling import Teller

T = TypeVar("T")
#: So many plans without a history are remembered, and so many that were written to.
KNOWN_MAX = 10_000
#: A segment counts as one, and as one more for each so many bytes: few large ones are much, too.
COUNTED_BYTES = 640


class Recorder:
    """Records the steps of one client under one root. `by` is who its events say did it.

    Thread-safe: each access to what it remembers is one operation of a set or a dict.
    """

    def __init__(
        self,
        root: str,
        by: str = "",
        clock: Callable[[], float] = time.monotonic,
        acting: Callable[[], str] = str,
    ) -> None:
        """`acting` says in whose name a step runs; empty: in that of `by`."""
        self.root, self.by, self._acting = root, by, acting
        #: The numbers of plans without a history: older ones, and those whose authors want none.
        self._without: set[str] = set()
        self._teller, self._clock = Teller(root, self._without), clock
        #: How much was written to each plan since somebody asked, in segments of usual size.
        self.written: Counter[str] = Counter()

    def leave_out(self, number: str) -> None:
        """Tell nothing of a plan from now on, because it keeps no history. Who does not know that
        is told by the first transaction, which is sent again."""
        if len(self._without) >= KNOWN_MAX:
            self._without.clear()
        self._without.add(number)

    def step(self, step: Step[T]) -> Step[T]:
        """The same step, whose transactions tell what they do."""
        sent: dict[Ticket, tuple[Multi | ReadMany, _Recorded | None]] = {}
        #: Reads that were answered before the transaction that they were sent behind.
        early: set[Ticket] = set()
        answer: Any = None
        failure: Exception | None = None
        try:
            while True:
                try:
                    request = step.send(answer) if failure is None else step.throw(failure)
                except StopIteration as stop:
                    return stop.value  # type: ignore[no-any-return]
                answer, failure = None, None
                try:
                    if type(request) is Multi:
                        recorded = self._recorded(request)
                        answer = yield recorded.multi
                        answer = yield from self._settled(recorded, answer)
                    elif type(request) is Send:
                        asked, made = request.request, None
                        if type(asked) is Multi:
                            made = self._recorded(asked)
                            request = Send(made.multi)
                        answer = yield request
                        sent[answer] = asked, made
                    elif type(request) is Await:
                        ticket = request.ticket
                        asked, made = sent.pop(ticket)
                        answer = yield request
                        if made is not None:
                            before = made.multi
                            answer = yield from self._settled(made, answer)
                            if made.multi is not before:
                                early.update(sent)
                        elif ticket in early:
                            answer = yield asked
                    else:
                        answer = yield request
                except Exception as error:
                    failure = error
        finally:
            step.close()

    def again(self, plan_path: str) -> None:
        """Count that plan as written to, so that its history is looked at again later. Any thread
        may call this."""
        self.written.setdefault(number_of(plan_path), 1)

    def _recorded(self, request: Multi) -> _Recorded:
        ops = request.ops
        if self._teller.tells_nothing(ops):
            return _Recorded(self.root, ops, [])
        now, by = self._clock() if request.facts else 0.0, self._acting() or self.by
        told = [
            (number, segment_to_bytes(by, events))
            for number, events in self._teller.events(ops, request.facts, by, now)
        ]
        return _Recorded(self.root, ops, told)

    def _settled(self, recorded: _Recorded, answer: Any) -> Step[Any]:
        """The answer to what the step has sent.

        Without a place for its history a transaction is sent again without it, or says only that
        there is something untold. It was not applied before: its own operations come first, and an
        earlier copy would have refused them.
        """
        count = len(recorded.ops)
        while isinstance(answer, Refused) and answer.at >= count:
            number = recorded.told[answer.at - count][0]
            path = history_path(f"{self.root}/plan-{number}")
            if answer.reason is Reason.NODE_EXISTS:
                yield from skip_number(path)  # somebody else has taken the name
            elif answer.reason is Reason.NO_NODE or number in recorded.untold:
                self.leave_out(number)
                recorded.told = [each for each in recorded.told if each[0] != number]
            else:
                recorded.untold.add(number)
            recorded.build()
            answer = yield recorded.multi
        if isinstance(answer, Applied) and recorded.told:
            if len(self.written) >= KNOWN_MAX:
                self.written.clear()
            for number, data in recorded.told:
                self.written[number] += 1 + len(data) // COUNTED_BYTES
            return Applied(answer.results[:count], answer.repeated, bool(recorded.untold))
        return answer


class _Recorded:
    """A transaction, and what it tells: for each plan the data of its segment.

    For those that are `untold` there was no room: it only says that something happened.
    """

    __slots__ = ("multi", "ops", "root", "told", "untold")

    def __init__(self, root: str, ops: Any, told: list[tuple[str, bytes]]) -> None:
        self.root, self.ops, self.told = root, ops, told
        self.untold = set[str]()
        self.build()

    def build(self) -> None:
        if not self.told:
            self.multi = Multi(self.ops)
            return
        more: list[Op] = []
        for number, data in self.told:
            path = history_path(f"{self.root}/plan-{number}")
            if number in self.untold:
                more.append(SetData(f"{path}/{UNTOLD}"))
            else:
                more.append(Create(f"{path}/{SEGMENT}", data, sequence=True))
        self.multi = Multi([*self.ops, *more])
