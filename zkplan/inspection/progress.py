"""A progress bar on a terminal, and nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..protocol.control import PlanStatus

Show = Callable[[PlanStatus], None]


@contextmanager
def show_progress(title: str, wanted: bool) -> Iterator[Show | None]:
    """Show a bar on stderr while the block runs, if `wanted` and stderr is a terminal.

    Gives what to call with each status, or None if nothing is shown.
    """
    if not wanted or not sys.stderr.isatty():
        yield None
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

        yield update
