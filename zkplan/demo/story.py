"""What the demonstration says: the story line by line, a progress bar, and the tables."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from zkplan.demo.analysis import Report
from zkplan.demo.journal import Execution
from zkplan.text import count


class Story(AbstractContextManager["Story"]):
    """Lines and tables on standard output, with a progress bar below them on a terminal.

    Where only standard error is a terminal the bar is there; where none is, there is no bar.
    """

    def __init__(self) -> None:
        self._out = Console(highlight=False)
        bar = self._out if self._out.is_terminal else Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=bar,
            transient=True,
            disable=not bar.is_terminal,
            # A line for a pipe must not end up in the terminal of the bar.
            redirect_stdout=False,
        )

    def say(self, line: str, style: str | None = None) -> None:
        """One line, however long: a pipe gets it unbroken."""
        self._out.print(Text(line, style or ""), soft_wrap=True)

    def progress(self, total: int) -> None:
        """Show the bar, until the end of the `with` block."""
        self._progress.add_task("tasks", total=total)
        self._progress.start()

    def done(self, tasks: int) -> None:
        """Move the bar to `tasks` of the total."""
        for bar in self._progress.task_ids:
            self._progress.update(bar, completed=tasks)

    def close_bar(self) -> None:
        """Take the bar away."""
        self._progress.stop()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close_bar()

    def tables(self, report: Report) -> None:
        """The largest modules and the most imported ones."""
        style: dict[str, Any] = {"box": SIMPLE_HEAD, "title_justify": "left", "title_style": "bold"}
        largest = Table("module", title="Largest modules", **style)
        for column in ("lines", "functions", "classes"):
            largest.add_column(column, justify="right")
        for module in report.largest:
            numbers = (module.lines, module.functions, module.classes)
            largest.add_row(module.name, *(f"{number:,}" for number in numbers))
        imported = Table("module", title="Most imported modules", **style)
        imported.add_column("files that import it", justify="right")
        for name, files in report.most_imported:
            imported.add_row(name, f"{files:,}")
        self._out.print(largest)
        self._out.print(imported)
        self.say(
            f"Analysed  {count(report.files, 'file')}, {count(report.lines, 'line')}, "
            f"{count(report.functions, 'function')}, {report.classes:,} classes; "
            f"{count(len(report.unparsed), 'file')} did not parse"
        )


def how_often(history: list[Execution]) -> str:
    """How many tasks were executed how often.

    >>> runs = [Execution("a", 0, "w", 1, 0.0), Execution("b", 0, "w", 1, 0.0)]
    >>> how_often([*runs, Execution("b", 1, "w", 2, 9.0)])
    '1 task once, 1 task twice'
    """
    times = Counter(Counter(execution.task for execution in history).values())
    words = {1: "once", 2: "twice"}
    return ", ".join(
        f"{count(tasks, 'task')} {words.get(number, f'{number} times')}"
        for number, tasks in sorted(times.items())
    )
