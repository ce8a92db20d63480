"""What the demonstration computes: facts about the source of Python's standard library.

The functions are pure but for reading the files they are given, and their values do not depend on
how the files are split into tasks or in which order parts are merged. So the result of a plan can
be compared, value by value, with that of one process.
"""

from __future__ import annotations

import ast
import os
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypeVar

T = TypeVar("T")

#: Files per task: some 30 ms of work, so that a plan has enough tasks to share among workers.
FILES_PER_TASK = 8
#: Parts per merge: the tree over a hundred tasks is three levels deep.
FAN_IN = 8
#: Rows of each table.
ROWS = 10
# Tests are left out because many distributions of Python do so: the input is alike everywhere.
_LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}


class Module(NamedTuple):
    """One source file. `functions` and `classes` count definitions at any depth."""

    lines: int
    name: str
    functions: int
    classes: int


class Summary(NamedTuple):
    """Facts about some files; the summary of two sets of files is the merge of their summaries.

    `unparsed` are the files that are not valid Python for this interpreter: they are named and
    otherwise not counted. `largest` holds at most ROWS modules. `importers` says for each top-level
    module how many files outside of it import it.
    """

    files: int
    lines: int
    functions: int
    classes: int
    unparsed: tuple[str, ...]
    largest: tuple[Module, ...]
    importers: dict[str, int]


class Report(NamedTuple):
    """The value of the plan's last task: totals and the rows of two tables."""

    files: int
    lines: int
    functions: int
    classes: int
    unparsed: tuple[str, ...]
    largest: tuple[Module, ...]
    most_imported: tuple[tuple[str, int], ...]


class Chunk(NamedTuple):
    """The files of one task, as paths relative to the folder of the library."""

    name: str
    files: tuple[str, ...]


def standard_library() -> Path:
    """The folder with the standard library of the interpreter that runs this."""
    return Path(sysconfig.get_paths()["stdlib"])


def source_files(folder: Path) -> list[str]:
    """The Python files under `folder`, relative, sorted; no tests and no installed packages."""
    found: list[str] = []
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _LEFT_OUT]  # Not walked at all.
        here = Path(where).relative_to(folder)
        found.extend((here / name).as_posix() for name in files if name.endswith(".py"))
    return sorted(found)


def split(files: Iterable[str], size: int = FILES_PER_TASK) -> list[Chunk]:
    """One chunk per package, several for a package of more than `size` files.

    Modules outside of any package count as one package, named `modules`.
    """
    chunks = []
    for package, group in groupby(sorted(files, key=_package_and_path), key=_package):
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
    modules: list[Module] = []
    unparsed: list[str] = []
    importers: Counter[str] = Counter()
    for file in files:
        source = Path(folder, file).read_bytes()
        try:
            tree = ast.parse(source, filename=file)
        except (SyntaxError, ValueError):  # ValueError: null bytes, or an encoding that lies.
            unparsed.append(file)
            continue
        module, imports = _describe(file, source, tree)
        modules.append(module)
        importers.update(imports)
    return Summary(
        files=len(modules),
        lines=sum(module.lines for module in modules),
        functions=sum(module.functions for module in modules),
        classes=sum(module.classes for module in modules),
        unparsed=tuple(sorted(unparsed)),
        largest=_largest(modules),
        importers=dict(importers),
    )


def merge(parts: Sequence[Summary]) -> Summary:
    """The summary of all files that the parts summarise."""
    importers: Counter[str] = Counter()
    for part in parts:
        importers.update(part.importers)
    return Summary(
        files=sum(part.files for part in parts),
        lines=sum(part.lines for part in parts),
        functions=sum(part.functions for part in parts),
        classes=sum(part.classes for part in parts),
        unparsed=tuple(sorted(file for part in parts for file in part.unparsed)),
        largest=_largest(module for part in parts for module in part.largest),
        importers=dict(importers),
    )


def report(summary: Summary) -> Report:
    """The tables: the largest modules, and the modules that most files import."""
    by_importers = sorted(summary.importers.items(), key=lambda item: (-item[1], item[0]))
    return Report(
        files=summary.files,
        lines=summary.lines,
        functions=summary.functions,
        classes=summary.classes,
        unparsed=summary.unparsed,
        largest=summary.largest,
        most_imported=tuple(by_importers[:ROWS]),
    )


def report_of_one_process(folder: str, chunks: Iterable[Chunk]) -> Report:
    """What the plan must come to: the same functions, one after the other, merged at once."""
    return report(merge([analyse(folder, chunk.files) for chunk in chunks]))


def _describe(file: str, source: bytes, tree: ast.Module) -> tuple[Module, set[str]]:
    """The facts of one file, and the top-level modules it imports from outside its own."""
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
    return Module(len(source.splitlines()), name, functions, classes), imports


def _largest(modules: Iterable[Module]) -> tuple[Module, ...]:
    # The name decides between equal sizes: without it the order of the parts would show.
    return tuple(sorted(modules, key=lambda module: (-module.lines, module.name))[:ROWS])


def _module_name(file: str) -> str:
    parts = PurePosixPath(file).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _package(file: str) -> str:
    first, slash, _ = file.partition("/")
    return first if slash else ""


def _package_and_path(file: str) -> tuple[str, str]:
    return _package(file), file
