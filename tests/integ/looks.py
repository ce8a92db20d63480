"""Every command that looks at a plan or a task, for what lies in it and must not be decoded."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.tools.support import Run
from zkplan import Plan, Task

#: Every command that reads a plan, and every one that reads a task. The last one runs it.
_WORDS = ("ls", "show", "why", "graph", "history", "timeline", "check", "export --out")
OF_PLAN = (
    *(f"plan {word}" for word in _WORDS),
    *("task ls", "task ls --outcomes", "task ls --all"),
)
OF_TASK = tuple(f"task {word}" for word in ("show", "show --values", "why", "logs", "replay"))


class Shown:
    """Runs all of them, each of which ends with a code that is known here, and gives the codes."""

    def __init__(
        self, run: Run, keys: Path, file: Path, plan: Plan, allowed: Iterable[str]
    ) -> None:
        self._run, self._file = run, file
        self._number = str(int(plan.number))
        self._allowed = [f"--allow={each}" for each in allowed]
        self._more = ("--serializer", "json", "--secret-file", str(keys))

    def __call__(self, *tasks: Task) -> list[int]:
        """Of the plan, then of each task."""
        number = self._number
        lines = [(word, *(() if word == "plan ls" else (number,))) for word in OF_PLAN]
        lines += [(word, number, task.number) for task in tasks for word in OF_TASK]
        return [self._code(*line) for line in lines]

    def _code(self, words: str, *given: str) -> int:
        first, second, *options = words.split()
        options += [str(self._file)] if second == "export" else []
        options += self._allowed if second == "replay" else []
        self._file.unlink(missing_ok=True)
        said = self._run(first, second, *given, *options, *self._more)
        assert said.code in (0, 1, 2), (words, said)
        assert "Usage: " not in said.err, said
        assert "Traceback" not in said.err or second == "replay", said
        return said.code
