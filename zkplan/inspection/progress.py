"""A progress bar on a terminal, and nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..basics.text import one_line

#: Shows how many tasks of how many have finished, and a detail.
Show = Callable[[int, int, str], None]


@contextmanager
def progress_bar(title: str, wanted: bool = True) -> Iterator[Show | None]:
    """Show a bar on stderr while the block runs, if `wanted` and stderr is a terminal.

    Gives what updates it, or None if nothing is shown.
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
    with Progress(*columns, console=Console(stderr=True), transient=False) as bar:
        row = bar.add_task(one_line(title), total=None, detail="")

        def show(finished: int, total: int, detail: str) -> None:
            bar.update(row, completed=finished, total=total, detail=detail)

        yield show
