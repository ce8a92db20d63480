"""Publish: make dependents runnable whose last argument was delivered, and end drained plans."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from ..basics.text import count
from ..protocol import control
from ..protocol.publish import Published, publish
from ..protocol.shared import NO_ALLOWANCE, Allowance, Dependent, Registration
from .claimer import Claimer
from .loader import Loader
from .membership import Membership
from .statistics import Counters
from .steps import Steps


@dataclass(eq=False)
class Publisher:
    """Publishes for one worker; only the loop's thread calls it."""

    steps: Steps
    membership: Membership
    claimer: Claimer
    loader: Loader
    counters: Counters
    #: Told of each plan that is done.
    done: Callable[[str], None]
    #: Plans that are being checked for their end. True: a task ended meanwhile, so check once more.
    _finishing: dict[str, bool] = field(default_factory=dict)

    def publish(self, full: list[Dependent], pending: str, allowance: Allowance) -> None:
        """Publish `full`, as the record `pending` says, and claim what `allowance` has room for."""
        me = self.membership.me
        if me is None:
            self.claimer.used(allowance)
            return  # whoever clears that claims node publishes them, by the pending record

        def published(done: Published | None) -> None:
            self.claimer.used(allowance)
            if done is None:
                self.publish_later(me, full, pending)
                return
            self.counters.refusals += done.refusals
            self.loader.take_on(done.claims, done.read)

        step = publish(me, full, pending, allowance)
        self.steps.start_contained(step, published, _what(full), instead=None)

    def publish_later(self, me: Registration, full: list[Dependent], pending: str) -> None:
        """Repeat until it is done: nobody else publishes for a living worker."""

        def published(done: Published) -> None:
            self.counters.refusals += done.refusals

        make = partial(publish, me, full, pending, NO_ALLOWANCE)
        self.steps.until_done(make, published, _what(full))

    def finish(self, plan_path: str) -> None:
        """End the plan if its last task has ended.

        Called when a task without dependents is done, or a task whose dependents may have ended
        before it.
        """
        if plan_path in self._finishing:
            self._finishing[plan_path] = True
            return
        self._finishing[plan_path] = False

        def looked(done: bool) -> None:
            again = self._finishing.pop(plan_path)
            if done:
                self.done(plan_path)
            elif again:
                self.finish(plan_path)

        step = control.finish(plan_path, time.time())
        self.steps.start_contained(step, looked, f"{plan_path} does not end", instead=False)


def _what(full: list[Dependent]) -> str:
    plans = ", ".join(sorted({target.plan for target in full}))
    return f"publishing {count(len(full), 'task')} of plan {plans}"
