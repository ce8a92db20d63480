"""What `zkplan task ls --all` lists: the tasks that have ended, and those that have not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import click

from ..client import Client
from ..history.across import Across
from ..inspection.across import Filter, FoundTask, find_tasks
from ..inspection.ended import ENDED, EndedTask, find_ended, plan_names, usual
from ..inspection.held import RUNNING
from ..processes.garbage import spare_a_reader
from ..protocol.layout import number_of

COLUMNS = (
    *("plan", "plan_name", "number", "name", "state", "since", "started", "seconds"),
    *("attempts", "worker", "queue", "due", "error"),
)


class WithEnded:
    """Tasks of one plan, or of all if `plan` is None; the filter counts for both kinds.

    `times`: tasks that ran so many times as long as is usual for their name, or run as long by now.
    `gaps` says what the histories did not tell, once the rows are listed.
    """

    def __init__(
        self, client: Client, plan: str | None, wanted: Filter, since: float, times: float | None
    ) -> None:
        self._client, self._wanted, self._since, self._times = client, wanted, since, times
        self._names = plan_names(client)
        if plan is None:
            self._paths, self._numbers = list(self._names), None
        else:
            self._paths = [client.plan(plan).path]
            self._numbers = [number_of(self._paths[0])]
        self._read: list[Across] = []

    def rows(self) -> Iterator[EndedTask | FoundTask]:
        """Those that have ended, by plan and number, then the others.

        The others are read first: what ends meanwhile is told as ended, or as it was before.
        """
        spare_a_reader()
        longest = self._longest()
        others = dict[tuple[str, str], FoundTask]()
        if self._wanted.state not in ENDED:
            others = {(task.plan, task.number): task for task in self._unfinished(longest)}
        if self._wanted.state is None or self._wanted.state in ENDED:
            across = Across(self._client.values, self._paths, self._since)
            self._read.append(across)
            for task in find_ended(across, self._names, self._wanted, self._since, longest):
                other = others.pop((task.plan, task.number), None)
                is_dead = other is not None and other.state == "dead"
                yield task._replace(state="dead") if is_dead else task
        yield from others.values()

    def _longest(self) -> Callable[[str], float] | None:
        """For the name of a task the seconds: only tasks that ran longer match."""
        if self._times is None:
            least = self._wanted.longer_than
            return None if least is None else lambda _: least
        times = self._times
        if self._wanted.state not in (None, RUNNING, *ENDED):
            raise click.UsageError(
                f"no task that is {self._wanted.state} runs, so no factor such as 3x fits: give "
                "--longer-than a time such as 90s"
            )
        across = Across(self._client.values, list(self._names))
        known = usual(across)
        self._read.append(across)
        self._paths = [path for path in self._paths if known.exceeded(path, times)]
        return lambda name: times * known.seconds(name)

    def _unfinished(self, longest: Callable[[str], float] | None) -> Iterator[FoundTask]:
        if self._times is None or longest is None:
            yield from find_tasks(self._client, self._wanted, self._numbers)
            return
        for task in find_tasks(self._client, self._wanted._replace(state=RUNNING), self._numbers):
            if time.time() - task.since > longest(task.name or ""):
                yield task

    @property
    def gaps(self) -> list[str]:
        return list(dict.fromkeys(told for across in self._read for told in across.gaps))
