"""The transport of a real loop in the simulation: its requests go through the simulated network."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from zkplan.protocol.history.segments import Recorder
from zkplan.protocol.requests import Request, Step, Unwatch
from zkplan.transport.transport import start_step

from .history import MERGES
from .network import Client, Fiber, Network
from .transaction import CLEARS

Done = Callable[[Any, BaseException | None], None]
#: What the judges call the fibers of these steps.
_KINDS = {"clear_claims": CLEARS, "release": CLEARS, "compact": MERGES}


def kind_of(step: Any) -> str:
    """The name of the step of the protocol, without what is wrapped around it."""
    while True:
        inner = step.gi_frame.f_locals.get("step") if step.gi_frame is not None else None
        if not inspect.isgenerator(inner):
            return str(_KINDS.get(step.gi_code.co_name, step.gi_code.co_name))
        step = inner


class LoopTransport:
    """What a loop asks of `Transport`. `relies_on` returns the claims that it holds, by task."""

    session_timeout_s = 10.0
    hosts = "the simulation"
    has_ended = False
    why_silent = ""
    broken: BaseException | None = None

    def __init__(
        self,
        *,
        network: Network,
        client: Client,
        recorder: Recorder,
        now: Callable[[], float],
        relies_on: Callable[[], dict[str, str]],
    ) -> None:
        self._network, self._client, self._recorder = network, client, recorder
        self._now, self._relies_on = now, relies_on
        #: Called with each step before it begins, and its kind: for a judge.
        self.begins: Callable[[str, Step[Any]], None] = lambda kind, step: None
        self._last_answer = now()
        #: How many requests each kind of step has sent.
        self.asked = Counter[str]()

    @property
    def last_answer(self) -> float:
        # While nothing is asked, kazoo pings.
        return self._last_answer if self._client.queue else self._now()

    def listen(self, listener: Callable[[str | None], None]) -> None:
        self._client.listener = listener

    def unlisten(self, listener: Callable[[str | None], None]) -> None:
        self._client.listener = None

    def unwatch(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.submit(Unwatch(path), lambda answer, error: None)

    def submit(self, request: Request, done: Done) -> None:
        """Send a request of no step."""
        nothing: Any = iter(())
        self._send(Fiber(self._client, "loop", nothing, {}), request, done)

    def start(
        self, step: Step[Any], post: Callable[[Callable[[], None]], None], done: Done
    ) -> None:
        kind = kind_of(step)
        self.begins(kind, step)
        step = self._recorder.step(step)
        fiber = Fiber(self._client, kind, step, self._relies_on())
        self._client.fibers.append(fiber)

        def ended(result: Any, error: BaseException | None) -> None:
            if fiber in self._client.fibers:
                self._client.fibers.remove(fiber)
            done(result, error)

        start_step(step, partial(self._send, fiber), post, ended)

    def _send(self, fiber: Fiber, request: Request, done: Done) -> None:
        self.asked[fiber.kind] += 1
        self._last_answer = self.last_answer

        def answered(answer: Any) -> None:
            self._last_answer = self._now()
            done(answer, None)

        self._network.submit(fiber, request, answered)
