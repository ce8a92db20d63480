"""The parts of the service that need no ZooKeeper: rates, tokens, cursors, functions by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkplan.author.functions import NamedFunction
from zkplan.errors import InvalidSettings
from zkplan.service import Tokens, new_token
from zkplan.service.answers import Problem, cursor_of, parts_of
from zkplan.service.app import create_app
from zkplan.service.entrance import CALLERS_MAX, Entrance, Rates

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "service.md"


def test_the_page_of_the_service_has_each_route_of_the_contract() -> None:
    app = create_app(None, None)  # type: ignore[arg-type]
    paths = app.openapi()["paths"].items()
    routes = {f"{method.upper()} {path}" for path, methods in paths for method in methods}
    told = set(re.findall(r"^\| `([A-Z]+ /v1/\S+)` \|", PAGE.read_text("utf-8"), re.MULTILINE))
    assert told == routes
    assert any(each.cls is Entrance for each in app.user_middleware)  # type: ignore[comparison-overlap]


def test_a_caller_gets_its_rate_and_its_burst_and_no_more() -> None:
    rates = Rates(10.0, 5.0)
    taken = [rates.take("a", 0.0) == 0 for _ in range(8)]
    assert taken == [True] * 5 + [False] * 3
    assert rates.take("b", 0.0) == 0
    assert rates.take("a", 0.0) == pytest.approx(0.1)
    assert sum(rates.take("a", 100 + each / 100) == 0 for each in range(100)) == 14
    assert all(Rates(0.0, 0.0).take("a", 0.0) == 0 for _ in range(100))
    for caller in range(CALLERS_MAX + 1):
        rates.take(str(caller), 200.0)
    # The last one is remembered, and the first one was forgotten.
    left = {
        each: [rates.take(each, 200.0) for _ in range(5)].count(0) for each in (str(caller), "0")
    }
    assert left == {str(caller): 4, "0": 5}


@given(st.text(max_size=80) | st.binary(max_size=60).map(lambda each: cursor_of(each.hex())))
def test_a_cursor_that_the_service_did_not_make_is_refused(cursor: str) -> None:
    with pytest.raises(Problem, match="the cursor is not"):
        parts_of(cursor, str, int)


@pytest.mark.parametrize("line", ["x", "00000000 root " + 64 * "0", "00000000 read 00", "é" * 90])
def test_a_wrong_file_of_tokens_admits_no_token(tmp_path: Path, line: str) -> None:
    file = tmp_path / "tokens"
    text = new_token(file, "a name", ["read", "work"])
    tokens = Tokens(file)
    found = tokens.find(text)
    assert found is not None
    assert (found.name, found.may("read"), found.may("author")) == ("a name", True, False)
    assert tokens.find(text[:-1] + ("A" if text[-1] != "A" else "B")) is None
    with file.open("a") as opened:
        opened.write(line + "\n")
    assert tokens.find(text) is None
    with pytest.raises(InvalidSettings, match="2: a line must be ID ROLES DIGEST NAME"):
        Tokens(file)
    with pytest.raises(InvalidSettings):
        new_token(file, "", ["read"])


@pytest.mark.parametrize("until", ["until=soon", "until=2026-12-31T00:00:00", "until="])
def test_a_token_is_valid_until_it_expires_and_an_invalid_time_is_refused(
    tmp_path: Path, until: str
) -> None:
    file = tmp_path / "tokens"
    tokens = {each: new_token(file, "a name", ["work"], each) for each in (60.0, 0.000001, None)}
    found = {each: Tokens(file).find(text) for each, text in tokens.items()}
    assert all(each is not None and each.name == "a name" for each in found.values())
    standing = [each for each, caller in found.items() if caller and Tokens(file).stands(caller)]
    assert standing == [60.0, None]
    with pytest.raises(InvalidSettings, match="100 years"):
        new_token(file, "", ["work"], 1e12)
    line = file.read_text().splitlines()[-1].replace("a name", f"{until} a name")
    file.write_text(line)
    with pytest.raises(InvalidSettings, match="1: a line must be ID ROLES DIGEST NAME"):
        Tokens(file)


def test_a_file_of_tokens_is_read_as_a_whole_or_refused_with_its_size(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.touch(0o600)
    file.write_text("# a comment\n" * 20_000)
    last = new_token(file, "behind 240 000 bytes", ["read"])
    assert Tokens(file).find(last) is not None
    with file.open("a") as opened:
        opened.write("#" * (1024 * 1024 - file.stat().st_size - 60))
    whole = Tokens(file)
    with pytest.raises(InvalidSettings, match="is full"):
        new_token(file, "one too many", ["read"])
    assert whole.find(last) is not None
    with file.open("a") as opened:
        opened.write("#" * 100)
    size = file.stat().st_size
    with pytest.raises(InvalidSettings, match=f"has {size} bytes, more than the maximum"):
        Tokens(file)


@pytest.mark.parametrize(
    "path",
    ["", "os", ":x", "os:", "os:_exit", "o s:x", "os:path.<lambda>", "kind:resize", "a..b:c"],
)
def test_a_name_that_no_worker_may_run_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"names no function|no module is called"):
        NamedFunction(path)


def test_a_function_may_be_a_kind_or_the_name_of_one_that_is_not_importable_here() -> None:
    assert NamedFunction("no.such.module:Class.method").zkplan_dumped[1:] == (
        b"no.such.module:Class.method"
    )
    assert NamedFunction.of_kind("resize-2.png").zkplan_dumped[1:] == b"kind:resize-2.png"
    with pytest.raises(ValueError, match="a kind must have"):
        NamedFunction.of_kind("Resize")
    with pytest.raises(TypeError, match="is not imported here"):
        NamedFunction("no.such:thing")()
