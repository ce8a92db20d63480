"""That a plan is in the wanted state already is not believed of one member, which may be behind."""

from __future__ import annotations

from typing import Any

from zkplan.protocol.control import change_state
from zkplan.protocol.records import control_to_bytes
from zkplan.protocol.requests import Applied, Check, Multi, Node, ReadMany, Reason, Refused, SetData

PATH = "/z/plan-0000000003"
READY = f"{PATH}/ready"


def seen(state: Any, version: int) -> list[Node | None]:
    """The plan, its `ready`, `done` and `add-count`, and its entry in the index."""
    ready = Node(control_to_bytes(state), version, 0, 0, 0, 0, 0)
    empty = Node(b"", 0, 0, 0, 0, 0, 0)
    return [empty, ready, None, empty, empty]


def sent(state: Any, *answers: Any) -> list[Any]:
    """The transactions that are sent, while the server answers so."""
    step, transactions = change_state(PATH, state), []
    try:
        request = next(step)
        for answer in answers:
            assert isinstance(request, ReadMany if isinstance(answer, list) else Multi)
            if isinstance(request, Multi):
                transactions.append(list(request.ops))
            request = step.send(answer)
    except StopIteration:
        return transactions
    raise AssertionError(f"{request} is asked")


def test_a_plan_that_is_paused_already_is_so_where_nothing_has_changed_it() -> None:
    assert sent("paused", seen("paused", 3), Applied([None])) == [[Check(READY, 3)]]


def test_a_plan_that_was_resumed_meanwhile_is_paused_again() -> None:
    changed = Refused(0, Reason.BAD_VERSION, READY)
    answers = seen("paused", 3), changed, seen("running", 4), Applied([None])
    assert sent("paused", *answers) == [
        [Check(READY, 3)],
        [SetData(READY, control_to_bytes("paused"), 4)],
    ]
