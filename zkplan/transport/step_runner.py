"""Runs steps of the protocol: each request that a step yields is sent, and the step its answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ..errors import ZkplanError
from ..protocol.requests import Await, Request, Send, Step, Ticket
from .calls import Done

T = TypeVar("T")


def run_step(step: Step[T], send: Callable[[Request], Any], wait: Callable[[Any], Any]) -> T:
    """Run a step to its end in this thread: `wait(send(request))` gives or raises the answer.

    Errors are raised inside the step; what it does not catch is raised here.
    """
    answer: Any = None
    failure: BaseException | None = None
    while True:
        try:
            request = step.send(answer) if failure is None else step.throw(failure)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        answer, failure = None, None
        try:
            if type(request) is Send:
                answer = Ticket(send(request.request))
            elif type(request) is Await:
                answer = wait(request.ticket.slot)
            else:
                answer = wait(send(request))
        except Exception as error:
            failure = error


def start_step(
    step: Step[T],
    submit: Callable[[Request, Done], Any],
    post: Callable[[Callable[[], None]], None],
    done: Callable[[T | None, BaseException | None], None],
) -> None:
    """Run a step in the background of a loop: `post` has the loop go on with each answer."""

    def resume(answer: Any, error: BaseException | None) -> None:
        while True:
            try:
                request = step.send(answer) if error is None else step.throw(error)
            except StopIteration as stop:
                return done(stop.value, None)
            except BaseException as failure:
                return done(None, failure)
            answer = error = None
            try:
                if type(request) is Send:
                    answer = Ticket(send_ahead(request.request))
                elif type(request) is Await:
                    awaited: AwaitedAnswer = request.ticket.slot
                    if awaited.outcome is None:
                        awaited.resume = resume
                        return None
                    answer, error = awaited.outcome
                else:
                    submit(request, later)
                    return None
            except ZkplanError as refused:
                error = refused  # too large or closed: the step decides

    def later(answer: Any, error: BaseException | None) -> None:
        post(lambda: resume(answer, error))

    def send_ahead(request: Request) -> AwaitedAnswer:
        awaited = AwaitedAnswer()
        submit(request, lambda *outcome: post(lambda: awaited.set(*outcome)))
        return awaited

    resume(None, None)


@dataclass(slots=True, eq=False)
class AwaitedAnswer:
    """The answer to a request that a step has sent ahead. Used on the loop's thread only."""

    outcome: tuple[Any, BaseException | None] | None = None
    #: Called with the answer, where the step waits for it.
    resume: Done | None = None

    def set(self, answer: Any, error: BaseException | None) -> None:
        self.outcome = answer, error
        if self.resume is not None:
            self.resume(answer, error)
