"""A server shows what its ensemble refuses for ever: each step comes to an end, and says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from zkplan.errors import TransactionRejected
from zkplan.protocol import control
from zkplan.protocol.requests import (
    Multi,
    Node,
    ReadChildren,
    ReadData,
    ReadMany,
    Reason,
    Refused,
    Step,
)

PATH = "/zkplan/plan-0000000003"
#: Far more than any of these steps takes.
REQUESTS_MAX = 10_000
DATA: dict[str, bytes] = {}


def shown(read: ReadData | ReadChildren) -> Node | list[str] | None:
    """A plan without tasks, as one server shows it."""
    if type(read) is ReadChildren:
        return ["ready", "add-count"] if read.path == PATH else []
    return None if read.path.endswith("/done") else Node(DATA.get(read.path, b""), *[0] * 6)


def on_a_diverged_server(step: Step[Any], refuse: Callable[[Multi], Refused]) -> Any:
    """Run `step` where all reads show the plan, and the ensemble, which has none, refuses."""
    answer: Any = None
    for _ in range(REQUESTS_MAX):
        try:
            request = step.send(answer)
        except StopIteration as stop:
            return stop.value
        if type(request) is Multi:
            answer = refuse(request)
        elif type(request) is ReadMany:
            answer = [shown(read) for read in request.reads]
        else:
            answer = shown(request)  # type: ignore[arg-type]
    pytest.fail(f"no end after {REQUESTS_MAX} requests")


def no_node(multi: Multi) -> Refused:
    return Refused(at=0, path=multi.ops[0].path, reason=Reason.NO_NODE)


def test_a_change_of_state_ends_and_says_where_to_look() -> None:
    with pytest.raises(TransactionRejected, match=r"changing .*3: .*docs/operate/operating"):
        on_a_diverged_server(control.change_state(PATH, "paused"), no_node)


@pytest.mark.parametrize("state", [b"", b'{"state":"cancelled"}'])
def test_a_removal_ends(state: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a plan that the server shows as running, or as half removed."""
    monkeypatch.setitem(DATA, f"{PATH}/ready", state)
    with pytest.raises(TransactionRejected, match="docs/operate/operating"):
        on_a_diverged_server(control.remove(PATH), no_node)


def test_a_worker_that_would_end_the_plan_goes_on_with_others() -> None:
    assert on_a_diverged_server(control.finish(PATH, 0.0), no_node) is False
