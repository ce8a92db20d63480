"""A step on a server that has diverged or always refuses ends and says why."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from zkplan.errors import (
    PlanCancelled,
    PlanDrained,
    PlanNotFound,
    ResultNotKept,
    TransactionRejected,
)
from zkplan.protocol.core import plan_life as control
from zkplan.protocol.core.add import NewTask, read_finished
from zkplan.protocol.core.claim import new_claim
from zkplan.protocol.core.end_claims import fail_again
from zkplan.protocol.core.plan_life import change_state
from zkplan.protocol.core.publish import publish
from zkplan.protocol.features import remove_plan as removal
from zkplan.protocol.features.author import Author
from zkplan.protocol.layout import Paths
from zkplan.protocol.records import control_to_bytes
from zkplan.protocol.requests import (
    Applied,
    Check,
    Create,
    Delete,
    Multi,
    Node,
    ReadChildren,
    ReadData,
    ReadMany,
    Reason,
    Refused,
    SetData,
    Step,
)
from zkplan.protocol.transactions import NO_ALLOWANCE, Dependent, Registration
from zkplan.transport.transport import run_step

PATH = "/zkplan/plan-0000000003"
READY = f"{PATH}/ready"
#: Far more than any of these steps takes.
REQUESTS_MAX = 10_000
DATA: dict[str, bytes] = {}


def node(data: bytes = b"", version: int = 0) -> Node:
    return Node(data, version, 0, 0, 0, 0, 0)


def shown(read: ReadData | ReadChildren) -> Node | list[str] | None:
    """A plan without tasks, as one server shows it."""
    if type(read) is ReadChildren:
        return ["ready", "add-count"] if read.path == PATH else []
    return None if read.path.endswith("/done") else node(DATA.get(read.path, b""))


def on_a_diverged_server(step: Step[Any], refuse: Callable[[Multi], Refused]) -> Any:
    """Run `step` where all reads show the plan, and the ensemble, which has none, refuses."""
    asked = count()

    def answer(request: Any) -> Any:
        if next(asked) == REQUESTS_MAX:
            pytest.fail(f"no end after {REQUESTS_MAX} requests")
        if type(request) is Multi:
            return refuse(request)
        if type(request) is ReadMany:
            return [shown(read) for read in request.reads]
        return shown(request)

    return run_step(step, answer, lambda answer: answer)


def no_node(multi: Multi) -> Refused:
    return Refused(at=0, path=multi.ops[0].path, reason=Reason.NO_NODE)


def test_a_change_of_state_on_a_diverged_server_fails_and_names_the_docs() -> None:
    with pytest.raises(TransactionRejected, match=r"changing .*3: .*docs/operate/operating"):
        on_a_diverged_server(control.change_state(PATH, "paused"), no_node)


@pytest.mark.parametrize("state", [b"", b'{"state":"cancelled"}'])
def test_a_removal_on_diverged_data_fails(state: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a plan that the server shows as running, or as half removed."""
    monkeypatch.setitem(DATA, f"{PATH}/ready", state)
    with pytest.raises(TransactionRejected, match="docs/operate/operating"):
        on_a_diverged_server(removal.remove(PATH), no_node)


def test_a_worker_that_cannot_end_a_plan_on_a_diverged_server_goes_on() -> None:
    assert on_a_diverged_server(control.finish(PATH, 0.0), no_node) is False


def seen(state: Any, version: int) -> list[Node | None]:
    """The plan, its `ready`, `done` and `add-count`, and its entry in the index."""
    return [node(), node(control_to_bytes(state), version), None, node(), node()]


def sent(state: Any, *answers: Any) -> list[Any]:
    """The transactions that are sent, while the server answers so."""
    left, transactions = list(answers), list[Any]()

    def answer(request: Any) -> Any:
        assert isinstance(request, ReadMany if isinstance(left[0], list) else Multi)
        if isinstance(request, Multi):
            transactions.append(list(request.ops))
        return left.pop(0)

    run_step(change_state(PATH, state), answer, lambda answer: answer)
    assert left == []
    return transactions


def test_pausing_a_paused_plan_checks_that_its_state_is_unchanged() -> None:
    assert sent("paused", seen("paused", 3), Applied([None])) == [[Check(READY, 3)]]


def test_a_plan_that_was_resumed_meanwhile_is_paused_again() -> None:
    changed = Refused(0, Reason.BAD_VERSION, READY)
    answers = seen("paused", 3), changed, seen("running", 4), Applied([None])
    assert sent("paused", *answers) == [
        [Check(READY, 3)],
        [SetData(READY, control_to_bytes("paused"), 4)],
    ]


@pytest.mark.parametrize(
    ("plan", "ready", "adds", "error"),
    [
        pytest.param(node(), node(), node(), ResultNotKept, id="it goes on"),
        pytest.param(node(), None, node(), ResultNotKept, id="it is not ready yet"),
        pytest.param(node(), node(control_to_bytes("paused")), node(), ResultNotKept, id="paused"),
        pytest.param(None, None, None, PlanNotFound, id="it was removed"),
        pytest.param(
            node(), node(control_to_bytes("cancelled")), None, PlanCancelled, id="cancelled"
        ),
        pytest.param(node(), node(), None, PlanDrained, id="it is done, and being removed"),
        pytest.param(node(), None, None, PlanDrained, id="nothing else is left of it"),
    ],
)
def test_each_reason_for_a_missing_task_has_its_own_error(
    plan: Node | None, ready: Node | None, adds: Node | None, error: type[Exception]
) -> None:
    step = read_finished(PATH, NewTask("task 'b'", "5000", b"", ["0000000005"]))
    asked = next(step)
    assert isinstance(asked, ReadMany)
    assert [read.path for read in asked.reads] == [
        f"{PATH}/task-0000000005",
        f"{PATH}/results/0000000005",
    ]
    # Read only now: what was missed went after this changed.
    asked = step.send([None, None])
    assert isinstance(asked, ReadMany)
    assert [read.path for read in asked.reads] == [PATH, f"{PATH}/ready", f"{PATH}/add-count"]
    with pytest.raises(error):
        step.send([plan, ready, adds])


def test_a_failure_whose_log_number_is_taken_skips_it_and_is_sent_again() -> None:
    me = Registration(Paths("/zkplan"), "worker", iter("0"))
    claim = new_claim(me, "0000000003", "5000", "0000000005", 0, 0)
    step = fail_again(claim, b"why", None, me.paths.delayed)
    first = next(step)
    assert isinstance(first, Multi)
    log = f"{PATH}/task-0000000005/log-"
    at = [op.path for op in first.ops].index(log)
    gap = step.send(Refused(at, Reason.NODE_EXISTS, log))
    assert isinstance(gap, Multi)
    assert [op.path for op in gap.ops] == [f"{PATH}/task-0000000005/gap"] * 2
    assert step.send(Applied([None, None])) == first, "the same again, with its entry and its log"


HERE = node()
#: The plan, its `done`, `ready`, `add-count` and `add-ids`.
BARE = [HERE, None, HERE, None, None]
RUNS = [HERE, None, HERE, HERE, HERE]
ENDED = [HERE, HERE, HERE, None, HERE]


def explained(*answers: list[Node | None]) -> None:
    """Raises what is wrong with the plan; it must take exactly these answers to tell."""
    step = Author(PATH).explain_plan()
    next(step)
    for answer in answers[:-1]:
        try:
            step.send(answer)
        except (PlanDrained, PlanNotFound, StopIteration) as early:
            pytest.fail(f"told after {answer}: {early!r}")
    with pytest.raises(StopIteration):
        step.send(answers[-1])


def test_a_plan_found_running_is_read_only_once() -> None:
    explained(RUNS)


def test_a_plan_completed_during_the_reads_accepts_tasks() -> None:
    completed_between = [*BARE[:4], HERE]
    explained(completed_between, RUNS)
    explained(BARE, completed_between, RUNS)


def test_a_plan_that_ends_during_the_reads_is_reported_as_drained() -> None:
    ended_between = [HERE, None, HERE, None, HERE]
    with pytest.raises(PlanDrained):
        explained(ended_between, ENDED, ENDED)


def test_a_fault_that_two_reads_agree_on_is_reported() -> None:
    with pytest.raises(PlanNotFound, match="has no `add-ids`"):
        explained(BARE, BARE)
    going = [HERE, None, HERE, None, HERE]
    with pytest.raises(PlanNotFound, match="is being removed"):
        explained(going, going)


def test_a_plan_that_refuses_a_publication_does_not_block_other_plans() -> None:
    record, shut, open_ = "/z/claims/w/pending-0", "0000000001", "0000000002"
    me = Registration(Paths("/z"), "w", iter(()))
    complete = [Dependent(plan, "0000000007", 2, "5000") for plan in (shut, open_)]
    step = publish(me, complete, record, NO_ALLOWANCE)
    both = next(step)
    assert isinstance(both, Multi)
    assert both.ops[-1] == Delete(record)
    entry = f"/z/plan-{shut}/runnable/5000-0000000007.0.0"
    rest = step.send(Refused(1, Reason.NO_AUTH, entry))
    assert isinstance(rest, Multi)
    made = [op.path for op in rest.ops if isinstance(op, Create)]
    assert made == [f"/z/plan-{open_}/runnable/5000-0000000007.0.0"]
    assert Delete(record) not in rest.ops, "it still names what is not published"
    with pytest.raises(TransactionRejected, match=f"task-0000000007 of /z/plan-{shut}"):
        step.send(Applied([None] * len(rest.ops)))
