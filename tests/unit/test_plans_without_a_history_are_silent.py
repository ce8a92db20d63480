"""A commit in a plan without a history derives no events; every other change is examined."""

from __future__ import annotations

import pytest

from zkplan.protocol.history.events import EventDeriver
from zkplan.protocol.requests import Check, Create, Delete, Op, SetData

ROOT = "/zkplan"
SILENT, TOLD = "0000000001", "0000000002"


def commit_of(plan: str) -> list[Op]:
    """What the commit of the second task of a chain does, which claims the third."""
    task, after = f"{ROOT}/plan-{plan}/task-0000000001", f"{ROOT}/plan-{plan}/task-0000000002"
    mine = f"{ROOT}/claims/worker-0000000005"
    return [
        Check(f"{ROOT}/workers/worker-0000000005"),
        Check(f"{ROOT}/plan-{plan}/ready", 3),
        Delete(f"{mine}/{plan}-0000000001.0.0.default-7"),
        Delete(f"{task}/owner"),
        Create(f"{after}/arg-0000000000", b"1"),
        Delete(f"{after}/dep-0000000000"),
        SetData(f"{after}/ready", b"1"),
        Delete(f"{task}/prov-0000000001"),
        Delete(f"{task}/ready"),
        Delete(task),
        Create(f"{mine}/{plan}-0000000002.0.0.default-8", b""),
        Create(f"{after}/owner", b"worker-0000000005 0"),
    ]


def test_a_commit_in_a_plan_without_a_history_records_nothing() -> None:
    teller = EventDeriver(ROOT, {SILENT})
    pending = f"{ROOT}/claims/worker-0000000005/pending-9"
    ops = [*commit_of(SILENT), Create(pending, b""), Delete(pending)]
    assert teller.derives_nothing(ops)
    assert list(teller.events(ops, {}, "author")) == []
    assert list(teller.events(commit_of(TOLD), {}, "author")) != []


@pytest.mark.parametrize(
    "op",
    [
        *commit_of(TOLD)[1:],
        Check(f"{ROOT}/claims/worker-0000000005/{TOLD}-0000000001.0.0.default-7"),
        Check(f"{ROOT}/claims/lease-0000000006"),
        Create(f"{ROOT}/workers/worker-0000000006", b""),
        Create(f"{ROOT}/delayed/0000000000000-{TOLD}-5000-0000000001", b""),
        Create(f"{ROOT}/gates/{TOLD}-5000-0000000001", b""),
        Create(f"{ROOT}/plan-", b"", sequence=True),
    ],
    ids=lambda op: f"{type(op).__name__} {op.path}",
)
def test_every_other_change_is_examined(op: Op) -> None:
    ops = commit_of(SILENT)
    for at in (0, len(ops) // 2, len(ops)):
        assert not EventDeriver(ROOT, {SILENT}).derives_nothing([*ops[:at], op, *ops[at:]])


def test_every_change_is_examined_if_all_plans_have_a_history() -> None:
    assert not EventDeriver(ROOT).derives_nothing(commit_of(TOLD))
