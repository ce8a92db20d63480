"""The table of faults in the README is that of the catalogue: each name, in the row of its case."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from .faults.catalogue import CATALOGUE

_README = Path(__file__).with_name("README.md")
_ROW = re.compile(r"^\| (\d+) \|.*?\| (.*) \|$", re.MULTILINE)
_NAME = re.compile(r"`([^`]+)`")
#: What stands for all names with that beginning.
_GROUP = " …"
#: What is no fault of the catalogue: tests, and shapes of plans.
_OTHERS = re.compile(r"tests/\w+|.*\.py|growing|diamonds|hub|failing|held")


def faults_in(text: str) -> dict[str, set[str]]:
    """By case, what the table names; a group counts as it stands."""
    table = text.partition("## The faults")[2].partition("\n## ")[0]
    found: defaultdict[str, set[str]] = defaultdict(set)
    for case, cell in _ROW.findall(table):
        found[case] |= {name for name in _NAME.findall(cell) if not _OTHERS.fullmatch(name)}
    return found


def is_named(name: str, said: set[str]) -> bool:
    groups = (each.removesuffix("…") for each in said if each.endswith(_GROUP))
    return name in said or any(name.startswith(group) for group in groups)


def stands_for_something(each: str) -> bool:
    if each.endswith(_GROUP):
        return any(name.startswith(each.removesuffix("…")) for name in CATALOGUE)
    return each in CATALOGUE


@pytest.fixture(scope="module")
def said() -> dict[str, set[str]]:
    return faults_in(_README.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_fault_stands_in_the_row_of_its_case(name: str, said: dict[str, set[str]]) -> None:
    assert is_named(name, said[CATALOGUE[name].case])


def test_the_table_names_nothing_else(said: dict[str, set[str]]) -> None:
    names = {each for row in said.values() for each in row}
    assert not [each for each in names if not stands_for_something(each)]


def test_a_group_stands_for_what_begins_with_it_and_for_nothing_else() -> None:
    said = faults_in("## The faults\n| 6 | between | `worker dies at point …`, `link cut` |\n")
    assert is_named("worker dies at point claim.made", said["6"])
    assert is_named("link cut", said["6"])
    for name in ("worker dies", "author dies at point add.before", "all links cut"):
        assert not is_named(name, said["6"])
