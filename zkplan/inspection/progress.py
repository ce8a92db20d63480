"""A progress bar on a terminal, and nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..protocol.control import PlanStatus


class Show:
    """A progress bar. Call it with each status; `visible` says whether it is shown."""

    def __init__(self, update: Callable[[PlanStatus], None] | None) -> None:
        self._update = update

    @property
    def visible(self) -> bool:
        return self._update is not None

    def __call__(self, status: PlanStatus) -> None:
        if self._update is not None:
            self._update(status)


@contextmanager
def show_progress(title: str, wanted: bool) -> Iterator[Show]:
    """Show a bar on stderr while the block runs, if `wanted` and stderr is a terminal."""
    if not wanted or not sys.stderr.isatty():
        yield Show(None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[detail]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=False) as bar:
        row = bar.add_task(title, total=None, detail="")

        def update(status: PlanStatus) -> None:
            detail = f"{status.runnable} runnable" + (
                f", {status.dead} dead" if status.dead else ""
            )
            bar.update(row, completed=status.finished, total=status.added, detail=detail)

        yield Show(update)
