"""Rules for zkplan alone: its examples run, and no check of input hangs on an assert."""

from __future__ import annotations

import ast
import doctest
import importlib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "zkplan"
WITH_EXAMPLES = sorted(
    ".".join(("zkplan", *path.relative_to(PACKAGE).with_suffix("").parts))
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)
#: Asserts that tell the type checker what the lines before them imply. `python -O` drops asserts,
#: so none may check what comes from outside: raise an error of zkplan instead.
TYPES_NARROWED = {
    "embedded/connection.py": {"isinstance(transport, asyncio.Transport)"},
    "embedded/database.py": {"isinstance(value, int)"},
    "embedded/service.py": {"isinstance(request, Multi)"},
    "protocol/author.py": {"isinstance(answer, Refused)"},
    "protocol/wide_delivery.py": {"loaded.result is not None"},
}


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_the_examples_in_the_docstrings_are_true(module: str) -> None:
    results = doctest.testmod(importlib.import_module(module))
    assert results.attempted > 0
    assert results.failed == 0


def test_the_pure_modules_have_examples() -> None:
    assert {"zkplan.protocol.layout", "zkplan.backoff"} <= set(WITH_EXAMPLES)


def test_an_assert_only_tells_the_type_checker_what_is_known() -> None:
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assert):
                name = path.relative_to(PACKAGE).as_posix()
                found.setdefault(name, set()).add(ast.unparse(node.test))
    assert found == TYPES_NARROWED


def test_no_module_catches_everything_without_a_name() -> None:
    bare = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ]
    assert bare == []
