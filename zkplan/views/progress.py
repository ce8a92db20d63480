"""Show how far a plan is: its tasks counted by state, and a progress bar."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ..basics.text import one_line
from ..protocol.core.plan_life import status
from ..protocol.features.task_place import placed
from ..protocol.layout import number_of
from ..values.connection import Connection


class PlanProgress(NamedTuple):
    """The tasks of a plan, counted by state. The counts were not all read at one moment.

    `running` counts the claimed tasks, `waiting` those that wait for others or are being defined,
    `gated` those that wait for a znode, `skipped` the skipped ones among the tasks that have
    finished or are about to.
    """

    added: int
    finished: int
    running: int
    runnable: int
    delayed: int
    waiting: int
    dead: int
    gated: int = 0
    skipped: int = 0

    @property
    def fraction(self) -> float:
        """The part of the tasks that has finished, 0.0 to 1.0; 1.0 for an empty plan."""
        return self.finished / self.added if self.added else 1.0


def plan_progress(client: Connection, plan_path: str) -> PlanProgress:
    """See Plan.progress."""
    seen = client.transport.run(status(plan_path))
    places = client.transport.run(placed(client.paths, number_of(plan_path)))
    states = Counter(place.state for place in places.values())
    return PlanProgress(
        added=seen.added,
        finished=seen.finished,
        running=states["running"],
        runnable=states["runnable"],
        delayed=states["delayed"],
        waiting=max(0, seen.tasks - len(places)),
        dead=states["dead"],
        gated=states["gated"],
        skipped=seen.skipped,
    )


#: Shows how many tasks have finished, how many there are, and a detail.
Show = Callable[[int, int, str], None]


@contextmanager
def progress_bar(title: str, wanted: bool = True) -> Iterator[Show | None]:
    """Show a bar on stderr while the block runs, if `wanted` and stderr is a terminal.

    Yields the function that updates it, or None if nothing is shown.
    """
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[detail]}", markup=False),
        TimeElapsedColumn(),
    )
    # A line for a pipe must not go to the terminal that shows the bar.
    redirect = sys.stdout.isatty()
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=redirect) as bar:
        row = bar.add_task(one_line(title), total=None, detail="")

        def show(finished: int, total: int, detail: str) -> None:
            bar.update(row, completed=finished, total=total, detail=detail)

        yield show
