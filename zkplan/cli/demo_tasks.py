"""The task functions of `zkplan demo`: facts about the source of Python's standard library.

Their values do not depend on how the files are split into tasks, or on the order in which parts are
merged. The result of a plan can therefore be compared with that of a single process.
"""

from __future__ import annotations

import ast
import json
import os
import sysconfig
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypeVar

import zkplan

T = TypeVar("T")

#: Files of a task, about 30 ms of work: a plan has enough tasks to share among workers.
FILES_PER_TASK = 8
#: Parts per merge: the tree over a hundred tasks is three levels deep.
FAN_IN = 8
#: Rows of each table.
ROWS = 10
# Many distributions of Python leave out the tests: without them the input is alike everywhere.
_LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
_NOTE = "zkplan demo runs "


class Execution(NamedTuple):
    """The start of one execution of a task.

    `attempt` is the fencing number, `at` the monotonic clock in seconds, which the processes of one
    machine share.
    """

    task: str
    attempt: int
    worker: str
    pid: int
    at: float


class Module(NamedTuple):
    """One source file. `functions` and `classes` count definitions at any depth."""

    lines: int
    name: str
    functions: int
    classes: int


class Summary(NamedTuple):
    """Facts about some files.

    `unparsed` names the files that this interpreter cannot parse, and that are not counted.
    `largest` holds at most ROWS modules. `importers` counts for each top-level module the files
    outside of it that import it.
    """

    files: int
    lines: int
    functions: int
    classes: int
    unparsed: tuple[str, ...]
    largest: tuple[Module, ...]
    importers: dict[str, int]


class Chunk(NamedTuple):
    """The files of one task, as paths relative to the folder of the library."""

    name: str
    files: tuple[str, ...]


def noted(function: Callable[..., T], *arguments: object) -> T:
    """Call `function` inside a task, after printing which worker executes it.

    The line lets the demonstration show that other workers ran the tasks of the killed one again.
    It is one write: a kill leaves a whole line or none.
    """
    context = zkplan.current()
    execution = context.name, context.attempt, context.worker, os.getpid(), time.monotonic()
    os.write(1, f"{_NOTE}{json.dumps(execution)}\n".encode())
    return function(*arguments)


def execution_of(line: str) -> Execution | None:
    """Read what `noted` has printed; None for any other line."""
    return Execution(*json.loads(line.removeprefix(_NOTE))) if line.startswith(_NOTE) else None


def standard_library() -> Path:
    """Return the folder with the standard library of this interpreter."""
    return Path(sysconfig.get_paths()["stdlib"])


def source_files(folder: Path) -> list[str]:
    """The Python files under `folder`, relative, sorted; no tests and no installed packages."""
    found: list[str] = []
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _LEFT_OUT]  # not searched
        here = Path(where).relative_to(folder)
        found.extend((here / name).as_posix() for name in files if name.endswith(".py"))
    return sorted(found)


def split(files: Iterable[str], size: int = FILES_PER_TASK) -> list[Chunk]:
    """One chunk per package, several for a package of more than `size` files.

    Modules outside of any package count as one package, named `modules`.
    """
    chunks = []
    in_order = sorted(files, key=lambda file: (_package(file), file))
    for package, group in groupby(in_order, key=_package):
        parts = list(batches(list(group), size))
        for number, part in enumerate(parts, start=1):
            name = package or "modules"
            chunks.append(Chunk(f"{name}-{number}" if len(parts) > 1 else name, tuple(part)))
    return chunks


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """`items` in runs of `size`, the last one shorter."""
    return (items[start : start + size] for start in range(0, len(items), size))


def analyse(folder: str, files: Sequence[str]) -> Summary:
    """Parse `files` of `folder`; raises OSError where one cannot be read."""
    return merge([_analyse(folder, file) for file in files])


def merge(parts: Sequence[Summary]) -> Summary:
    """Merge the summaries of some files into the summary of all of them."""
    importers: Counter[str] = Counter()
    for part in parts:
        importers.update(part.importers)
    # The name decides between equal sizes: without it the order of the parts would show.
    largest = sorted(
        (module for part in parts for module in part.largest),
        key=lambda module: (-module.lines, module.name),
    )
    return Summary(
        files=sum(part.files for part in parts),
        lines=sum(part.lines for part in parts),
        functions=sum(part.functions for part in parts),
        classes=sum(part.classes for part in parts),
        unparsed=tuple(sorted(file for part in parts for file in part.unparsed)),
        largest=tuple(largest[:ROWS]),
        importers=dict(importers),
    )


def most_imported(summary: Summary) -> list[tuple[str, int]]:
    """Return the modules that most files import, and how many do."""
    return sorted(summary.importers.items(), key=lambda item: (-item[1], item[0]))[:ROWS]


def _analyse(folder: str, file: str) -> Summary:
    """Return the facts of one file."""
    source = Path(folder, file).read_bytes()
    try:
        tree = ast.parse(source, filename=file)
    except (SyntaxError, ValueError):  # ValueError: null bytes, or an encoding that lies.
        return Summary(0, 0, 0, 0, (file,), (), {})
    name = _module_name(file)
    functions = classes = 0
    imports: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions += 1
        elif isinstance(node, ast.ClassDef):
            classes += 1
        elif isinstance(node, ast.Import):
            imports.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            imports.add(node.module.partition(".")[0])
    imports.discard(name.partition(".")[0])
    lines = len(source.splitlines())
    largest = (Module(lines, name, functions, classes),)
    return Summary(1, lines, functions, classes, (), largest, dict.fromkeys(imports, 1))


def _module_name(file: str) -> str:
    parts = PurePosixPath(file).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _package(file: str) -> str:
    return file.rpartition("/")[0].partition("/")[0]
