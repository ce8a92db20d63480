"""The parts of the service that need no ZooKeeper: rates, tokens, cursors, functions by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkplan.errors import InvalidSettings
from zkplan.functions.named import NamedFunction
from zkplan.service import Tokens, new_token
from zkplan.service.app import create_app
from zkplan.service.entrance import Entrance
from zkplan.service.paging import cursor_of, parts_of
from zkplan.service.problems import Problem
from zkplan.service.rates import CALLERS_MAX, Rates
from zkplan.service.watcher import WAITING_MAX, Event, Listener

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
    for caller in range(2 * CALLERS_MAX):
        rates.take(str(caller), 200.0)
    assert len(rates._left) == CALLERS_MAX


@given(st.text(max_size=80) | st.binary(max_size=60).map(lambda each: cursor_of(each.hex())))
def test_a_cursor_of_elsewhere_is_refused_and_never_believed(cursor: str) -> None:
    with pytest.raises(Problem, match="the cursor is none"):
        parts_of(cursor, str, int)


@pytest.mark.parametrize("line", ["x", "00000000 root " + 64 * "0", "00000000 read 00", "é" * 90])
def test_a_file_of_tokens_that_is_wrong_lets_nobody_in(tmp_path: Path, line: str) -> None:
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
    with pytest.raises(InvalidSettings, match="2: a line is ID ROLES DIGEST NAME"):
        Tokens(file)
    with pytest.raises(InvalidSettings):
        new_token(file, "", ["read"])


@pytest.mark.parametrize(
    "path",
    ["", "os", ":x", "os:", "os:_exit", "o s:x", "os:path.<lambda>", "kind:resize", "a..b:c"],
)
def test_a_name_that_no_worker_may_run_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"names no function|no module is called"):
        NamedFunction(path)


def test_a_function_of_a_kind_or_of_a_module_that_is_not_here_is_named() -> None:
    assert NamedFunction("no.such.module:Class.method").zkplan_dumped[1:] == (
        b"no.such.module:Class.method"
    )
    assert NamedFunction.of_kind("resize-2.png").zkplan_dumped[1:] == b"kind:resize-2.png"
    with pytest.raises(ValueError, match="a kind has"):
        NamedFunction.of_kind("Resize")
    with pytest.raises(TypeError, match="is not imported here"):
        NamedFunction("no.such:thing")()


def test_a_listener_that_takes_nothing_is_cut_off_with_a_bounded_backlog() -> None:
    listener = Listener()
    for index in range(10 * WAITING_MAX):
        listener.tell(Event("plan", {"index": index}))
    left = [listener._events.get_nowait() for _ in range(listener._events.qsize())]
    assert [each.name if each else None for each in left] == ["cut", None]
