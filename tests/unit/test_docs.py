"""The documentation keeps up with the code: commands, errors, invariants, links, examples."""

from __future__ import annotations

import contextlib
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest

from tests.tools.command_tree import commands
from zkplan.cli import cli

from .command_options import PAGE, with_options, with_task_options

TOP = Path(__file__).parents[2]
PAGES = sorted(
    [
        *TOP.glob("*.md"),
        *TOP.glob("docs/**/*.md"),
        *TOP.glob("benchmarks/*.md"),
        *TOP.glob("tests/**/*.md"),
    ],
    key=lambda page: page.as_posix(),
)
README_LINES_MAX = 150
INVARIANTS = [
    *(f"S{number}" for number in range(1, 10)),
    "S12",
    "S14",
    "S15",
    "S16",
    "S17",
    "S18",
    "S19",
    "S20",
    "S21",
    "S22",
    "L1",
    "L2",
    "L3",
]

_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_TEST = re.compile(r"\btests/[\w/]+\.py(?:::(\w+))?")
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_STEP = re.compile(r"`([a-z_]+(?:\.[A-Za-z_]+)+)`")
#: Words with a dot in docs/internals/protocol.md that name no code.
_NOT_CODE = {"jute.maxbuffer"}

every_page = pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: page.relative_to(TOP).as_posix()
)


def read(name: str) -> str:
    return (TOP / name).read_text(encoding="utf-8")


def named(name: str) -> Any:
    """What a dotted name of docs/internals/protocol.md stands for; None where it stands for
    nothing."""
    rooms = ("zkplan.protocol.core", "zkplan.protocol.features", "zkplan.protocol.history")
    for package in (*rooms, "zkplan.protocol", "zkplan"):
        with contextlib.suppress(ImportError, AttributeError):
            return pkgutil.resolve_name(f"{package}.{name.removeprefix('zkplan.')}")
    return None


def test_every_command_is_documented() -> None:
    text = read("docs/start/reference.md")
    missing = [path for path in commands(cli, "zkplan") if f"`{path}`" not in text]
    assert not missing


def test_the_tables_of_options_match_the_code() -> None:
    page = PAGE.read_text("utf-8")
    assert with_task_options(with_options(page)) == page, "run `python3 dev.py docs`"


@pytest.mark.parametrize("invariant", INVARIANTS)
def test_every_invariant_is_stated_enforced_and_tested(invariant: str) -> None:
    rows = re.findall(
        rf"^\| {invariant} \| (.+) \|$", read("docs/internals/protocol.md"), re.MULTILINE
    )
    assert len(rows) == 2, "one row says what holds, one says by what and tested where"
    enforced, _, tested = rows[1].partition(" | ")
    assert enforced
    assert tested


def test_code_named_on_the_protocol_page_exists() -> None:
    names = set(_STEP.findall(read("docs/internals/protocol.md"))) - _NOT_CODE
    assert len(names) > 30
    assert not sorted(name for name in names if named(name) is None)


@every_page
def test_tests_named_on_a_page_exist(page: Path) -> None:
    missing = []
    for match in _TEST.finditer(page.read_text(encoding="utf-8")):
        file = TOP / match[0].partition("::")[0]
        if not file.is_file() or f"def {match[1] or ''}" not in file.read_text(encoding="utf-8"):
            missing.append(match[0])
    assert not missing


@every_page
def test_relative_links_have_a_target(page: Path) -> None:
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    targets = [target.partition("#")[0] for target in _LINK.findall(text) if "://" not in target]
    assert not [
        target for target in targets if target and not (page.parent / target).resolve().exists()
    ]


@every_page
def test_the_rows_of_a_table_have_as_many_cells_as_its_header(page: Path) -> None:
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    for table in re.findall(r"(?:^\|.*\|$\n?)+", text, re.MULTILINE):
        rows = table.splitlines()
        cells = [len(re.findall(r"(?<!\\)\|", re.sub(r"`[^`]*`", "", row))) for row in rows]
        assert not [row for row, count in zip(rows, cells, strict=True) if count != cells[0]]


@every_page
def test_a_page_has_one_title(page: Path) -> None:
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1


def test_every_page_of_docs_is_linked_from_another_page() -> None:
    linked = set()
    for page in PAGES:
        for target in _LINK.findall(_FENCED.sub("", page.read_text(encoding="utf-8"))):
            linked.add((page.parent / target.partition("#")[0]).resolve())
    unlinked = [
        page
        for page in PAGES
        if page.is_relative_to(TOP / "docs")
        and page.resolve() not in linked
        and page.parent.resolve() not in linked
    ]
    assert not unlinked


def test_the_readme_is_short() -> None:
    assert len(read("README.md").splitlines()) < README_LINES_MAX


def test_readme_and_guide_show_the_examples_as_they_are() -> None:
    shown = _PYTHON.findall(read("README.md")) + _PYTHON.findall(read("docs/start/guide.md"))
    examples = {file.read_text(encoding="utf-8"): file.name for file in TOP.glob("examples/*.py")}
    assert set(shown) <= set(examples)
    # One that is too long for a page is named there.
    named = {name for code, name in examples.items() if code not in shown}
    assert all(f"`examples/{name}`" in read("docs/start/guide.md") for name in named)


def test_the_readme_says_what_the_example_prints() -> None:
    # The integration test of the README runs the example and compares.
    assert "`9 words, the longest is 'functions'`" in read("README.md")
