"""A transaction obstructed by foreign znodes is sent again after these are deleted."""

from __future__ import annotations

from typing import Any

import pytest

from zkplan.protocol.history.segments import CLEARED_MAX, Recorder
from zkplan.protocol.interference import BELOW_MAX, folder_restored
from zkplan.protocol.requests import (
    Applied,
    Await,
    Delete,
    Multi,
    ReadChildren,
    ReadData,
    ReadMany,
    Reason,
    Refused,
    Send,
    Step,
)
from zkplan.transport.transport import run_step

ROOT = "/z"
PLAN = f"{ROOT}/plan-0000000004"
CLAIM = f"{ROOT}/claims/w/0000000004-0000000006.0.1"
WORKERS = f"{ROOT}/workers/w"


class Server:
    """A few znodes. Refuses to delete one that has children, and each delete of what `stays`."""

    def __init__(self, *paths: str, stays: str = "") -> None:
        self.paths, self.stays = set(paths), stays
        self.sent: list[Any] = []
        #: Whether the answer to the first transaction was lost.
        self.repeated = False

    def answer(self, request: Any) -> Any:
        self.sent.append(request)
        if type(request) is ReadMany:
            return [self._read(read) for read in request.reads]
        if type(request) is not Multi:
            return self._read(request)
        for at, op in enumerate(request.ops):
            below = any(path.startswith(f"{op.path}/") for path in self.paths)
            if type(op) is Delete and (below or op.path == self.stays):
                reason = Reason.NOT_EMPTY if below else Reason.NO_AUTH
                repeated, self.repeated = self.repeated, False
                return Refused(at, reason, op.path, repeated)
        self.paths -= {op.path for op in request.ops}
        return Applied([True for _ in request.ops])

    def _read(self, read: Any) -> Any:
        if type(read) is ReadData:
            return read.path in self.paths
        depth = read.path.count("/") + 1
        found = [p for p in self.paths if p.startswith(f"{read.path}/") and p.count("/") == depth]
        return [path.rpartition("/")[2] for path in found]

    def delete(self, *paths: str) -> Any:
        def step() -> Step[Any]:
            return (yield Multi([Delete(path) for path in paths]))

        return run_step(Recorder(ROOT).step(step()), self.answer, lambda given: given)


@pytest.mark.parametrize(
    "path",
    [
        CLAIM,
        f"{ROOT}/active/0000000004",
        f"{ROOT}/delayed/0000000000001-0000000004-5000-0000000006.0.0",
        f"{ROOT}/limits/db/permit-0",
        f"{ROOT}/schedules/nightly/next-7f",
        f"{PLAN}/ready",
        f"{PLAN}/add-count",
        f"{PLAN}/runnable/5000-0000000006.0.0",
        f"{PLAN}/queues/gpu/5000-0000000006.0.0",
        f"{PLAN}/task-0000000006/owner",
        f"{PLAN}/task-0000000006/arg-0000000000",
    ],
)
def test_znodes_below_a_leaf_are_deleted(path: str) -> None:
    server = Server(path, f"{path}/x", f"{path}/x/y", f"{path}/z")
    assert isinstance(server.delete(path), Applied)
    assert not server.paths


@pytest.mark.parametrize(
    "path",
    [
        ROOT,
        f"{ROOT}/claims",
        f"{ROOT}/claims/lease-30000.7f",
        f"{ROOT}/limits/db",
        f"{ROOT}/schedules/nightly",
        PLAN,
        f"{PLAN}/task-0000000006",
        f"{PLAN}/results",
        f"{PLAN}/history",
        f"{PLAN}/queues/gpu",
        "/elsewhere/claims/w/x",
    ],
)
def test_children_that_zkplan_itself_creates_are_not_deleted(path: str) -> None:
    server = Server(path, f"{path}/x")
    answer = server.delete(path)
    assert isinstance(answer, Refused)
    assert answer.reason is Reason.NOT_EMPTY
    assert len(server.sent) == 1


def test_an_earlier_lost_answer_is_not_forgotten() -> None:
    server = Server(CLAIM, f"{CLAIM}/x")
    server.repeated = True
    assert server.delete(CLAIM) == Applied([True], repeated=True)


@pytest.mark.parametrize(
    "server",
    [
        Server(CLAIM, f"{CLAIM}/x", stays=f"{CLAIM}/x"),
        Server(CLAIM, *(f"{CLAIM}/{number}" for number in range(BELOW_MAX + 1))),
    ],
)
def test_undeletable_or_too_many_znodes_refuse_the_transaction(server: Server) -> None:
    answer = server.delete(CLAIM)
    assert isinstance(answer, Refused)
    assert (answer.reason, answer.path) == (Reason.NOT_EMPTY, CLAIM)
    assert len(server.sent) < CLEARED_MAX


def test_reads_after_the_transaction_are_sent_again() -> None:
    server = Server(CLAIM, f"{CLAIM}/x", WORKERS)
    reads = ReadMany([ReadData(CLAIM), ReadChildren(f"{ROOT}/workers")])

    def step() -> Step[Any]:
        first = yield Send(Multi([Delete(CLAIM)]))
        second = yield Send(reads)
        answer = yield Await(first)
        return answer, (yield Await(second))

    answer, read = run_step(Recorder(ROOT).step(step()), server.answer, lambda given: given)
    assert isinstance(answer, Applied)
    assert read == [False, ["w"]]


@pytest.mark.parametrize(
    ("answer", "restored"),
    [
        (Applied([f"{ROOT}/claims"]), True),
        (Refused(0, Reason.NODE_EXISTS, f"{ROOT}/claims"), True),
        (Refused(0, Reason.NO_AUTH, f"{ROOT}/claims"), False),
    ],
)
def test_a_folder_recreated_by_another_step_counts_as_restored(answer: Any, restored: bool) -> None:
    refused = Refused(1, Reason.NO_NODE, f"{ROOT}/claims/w")
    assert run_step(folder_restored(refused), lambda _: answer, lambda given: given) is restored
