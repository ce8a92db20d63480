"""Check the rules of this project: sizes, sentences, words, names, waiting, asserts, examples."""

from __future__ import annotations

import ast
import doctest
import importlib
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
FOLDERS = ("zkplan", "tests", "benchmarks", "examples")
FILES = [
    *sorted(path for folder in FOLDERS for path in (TOP / folder).rglob("*.py")),
    TOP / "dev.py",
]
MODULE_LINES_MAX, FUNCTION_LINES_MAX = 500, 70
TOP_MODULES_MAX = 14
#: Printing is for what people start in a terminal.
MAY_PRINT = re.compile(r"(zkplan/cli|benchmarks|examples)/|dev\.py")
WORDS = ("probably", "should " + "be safe", "hopefully")
#: A word for a thing that has a name already (the vocabulary of docs/internals/protocol.md).
SYNONYMS = re.compile(r"\b(workflow|job_id|claimant_id|parent_task|child_task|dag_id)\b")

#: Words that earlier versions used for things that have a standard name.
OLD_WORDS = re.compile(
    r"(?<![a-z])(desks?|keepers?|standstill|nursery|nurseries|arenas?|veterans?|baits?|mayfl[a-z]+|"
    r"litter|engines?|seekers?|seeking|upkeep|wording|what presses)(?![a-z])",
    re.IGNORECASE,
)
OTHER_MEANINGS = re.compile(r"ClickHouse Keeper|Docker engine|MALLOC_ARENA_MAX", re.IGNORECASE)
TEST_NAME_MAX = 80


def name_of(path: Path) -> str:
    return path.relative_to(TOP).as_posix()


def comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        quoted = token.type == tokenize.STRING and token.string.startswith('"""')
        if token.type == tokenize.COMMENT or quoted:
            yield token.start[0], token.string


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_module_keeps_the_rules(path: Path) -> None:
    source = path.read_text()
    lines = source.splitlines()
    tree = ast.parse(source)
    broken = [*sizes(lines, tree), *words(source, path), *calls(tree, path)]
    broken += names(tree, path)
    if source.strip() and not starts_with_a_sentence(tree):
        broken.append("its first line is no docstring with a sentence")
    assert broken == []


def starts_with_a_sentence(tree: ast.Module) -> bool:
    first = (ast.get_docstring(tree) or "").partition("\n\n")[0].strip()
    return first.endswith((".", ":", "?", ";")) and len(first) > 20


def sizes(lines: list[str], tree: ast.Module) -> Iterator[str]:
    if len(lines) > MODULE_LINES_MAX:
        yield f"{len(lines)} lines, at most {MODULE_LINES_MAX}"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            if size > FUNCTION_LINES_MAX:
                yield f"{node.name} has {size} lines, at most {FUNCTION_LINES_MAX}"


def words(source: str, path: Path) -> Iterator[str]:
    for number, text in comments(source):
        for word in WORDS:
            if word in text.lower() and path != Path(__file__):
                yield f"line {number} says {word!r}: say what is known, or find out"
        if re.search(r"\b(TODO|FIXME|XXX)\b", text) and path != Path(__file__):
            yield f"line {number} leaves something for later"
    if name_of(path).startswith(("zkplan/", "tests/")) and path != Path(__file__):
        for number, line in enumerate([name_of(path), *source.splitlines()]):
            if found := OLD_WORDS.search(OTHER_MEANINGS.sub("", line)):
                yield f"line {number}: {found[0]!r} is an old word: use the standard term"
    if name_of(path).startswith("zkplan/"):
        for number, line in enumerate(source.splitlines(), 1):
            if found := SYNONYMS.search(line):
                yield f"line {number}: {found[0]!r} is not in the vocabulary"


def calls(tree: ast.Module, path: Path) -> Iterator[str]:
    name = name_of(path)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called == "print" and not MAY_PRINT.match(name):
            yield f"line {node.lineno} prints"
        if called in ("time.sleep", "sleep") and name.startswith("tests/"):
            yield f"line {node.lineno} sleeps: wait for a condition"
        if re.match(r"random\.[a-z]", called) and name.startswith("zkplan/"):
            yield f"line {node.lineno} draws from the shared generator: take CHANCE of backoff.py"


def names(tree: ast.Module, path: Path) -> Iterator[str]:
    for node in ast.walk(tree) if path.name.startswith("test_") else ():
        name = getattr(node, "name", "")
        is_test = isinstance(node, ast.stmt) and name.startswith("test_")
        if is_test and (name.count("_") < 3 or len(name) > TEST_NAME_MAX):
            yield f"{name} is no sentence of at most {TEST_NAME_MAX} characters"


def test_few_modules_lie_at_the_top_of_the_package() -> None:
    assert len(list((TOP / "zkplan").glob("*.py"))) <= TOP_MODULES_MAX


def test_old_words_are_found_in_texts_and_in_identifiers() -> None:
    found = ["a desk", "dead_at_standstill", "class Litter:", "the keeper"]
    passed = ["ZooKeeper", "KeeperState.EXPIRED", "ClickHouse Keeper", "arenaceous"]
    assert [bool(OLD_WORDS.search(text)) for text in found] == [True] * len(found)
    cleaned = [OTHER_MEANINGS.sub("", text) for text in passed]
    assert [bool(OLD_WORDS.search(text)) for text in cleaned] == [False] * len(passed)


#: What each folder of tests may import besides its own modules and tests/tools. Chaos breaks real
#: processes as the simulation breaks its own; golden files come from the tree of the simulation.
FOLDERS_BELOW = {
    "unit": {"sim"},
    "chaos": {"sim", "conftest"},
    "embedded": {"unit"},
    "crash": {"embedded"},
    "kazoo_suite": {"embedded"},
}


def test_a_folder_of_tests_imports_only_the_tools_and_allowed_folders() -> None:
    folders = [path for path in (TOP / "tests").iterdir() if path.is_dir()]
    for path in [path for folder in folders for path in folder.rglob("*.py")]:
        folder = path.relative_to(TOP / "tests").parts[0]
        imported = {
            alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom) and not getattr(node, "level", 0)
            for alias in node.names
        }
        used = {name.split(".")[1] for name in imported if name.startswith("tests.")}
        assert used <= {folder, "tools", *FOLDERS_BELOW.get(folder, ())}, name_of(path)


def test_no_file_names_a_path_of_the_machine_it_was_written_on() -> None:
    spoken = re.compile(r"/" + r"(work|root|tmp/venv)\b")
    suffixes = {".py", ".md", ".toml", ".yml", ".yaml", ""}
    for path in [*FILES, *TOP.glob("*"), *(TOP / "docs").rglob("*")]:
        if path.is_file() and path.suffix in suffixes and path.name != ".git":
            found = spoken.search(path.read_text(errors="replace"))
            assert found is None, f"{name_of(path)} names {found and found[0]}"


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
    "embedded/service.py": {"isinstance(request, ask.Multi)"},
    "protocol/features/author.py": {"isinstance(answer, Refused)", "isinstance(made, str)"},
    "protocol/features/keys.py": {"held.plan is not None"},
    "protocol/core/wide_delivery.py": {"loaded.result is not None"},
}


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_the_examples_in_docstrings_pass(module: str) -> None:
    results = doctest.testmod(importlib.import_module(module))
    assert results.attempted > 0
    assert results.failed == 0


def test_the_pure_modules_have_examples() -> None:
    assert {"zkplan.protocol.layout", "zkplan.backoff"} <= set(WITH_EXAMPLES)


def test_an_assert_only_informs_the_type_checker() -> None:
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assert):
                name = path.relative_to(PACKAGE).as_posix()
                found.setdefault(name, set()).add(ast.unparse(node.test))
    assert found == TYPES_NARROWED
