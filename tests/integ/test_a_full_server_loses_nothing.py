"""On a server without room running plans go on, and a refused client is told why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import QuotaExceededError

import zkplan
from tests.tools.support import Told, plain_client, standing_claims, wait_until, working
from zkplan import Client, TaskSpec
from zkplan.embedded import EmbeddedServer, Limits
from zkplan.protocol.core.claim import Claimed
from zkplan.protocol.requests import Check, Create, Multi, Reason, Refused, Request
from zkplan.protocol.transactions import NO_ALLOWANCE
from zkplan.runtime import claims as kept_results
from zkplan.runtime import plan_view
from zkplan.runtime.claimer import Claimer
from zkplan.runtime.maintenance import PlanCheck
from zkplan.runtime.plan_view import PlanView
from zkplan.transport import Transport

ROOT = "/full"


@contextmanager
def limited(**limits: int) -> Iterator[Client]:
    """A client of an embedded server with these limits."""
    with (
        EmbeddedServer(limits=Limits()._replace(**limits), is_open=True) as server,
        zkplan.connect(server.hosts, root=ROOT) as client,
    ):
        client.prepare()
        yield client


def fill(client: Client) -> zkplan.Plan:
    """A plan to which tasks were added until one was refused."""
    plan = client.create_plan("fills the server")
    with pytest.raises(zkplan.ServerFull, match="remove plans"):
        until_refused(lambda: plan.add_tasks([TaskSpec(int) for _ in range(10)]))
    return plan


def until_refused(add: Callable[[], object]) -> None:
    while True:
        add()


def test_a_full_server_refuses_adds_and_a_running_plan_drains() -> None:
    with limited(znodes=600) as client:
        plan = fill(client)
        plan.mark_ready()
        with working(client.transport.hosts, ROOT):
            assert plan.wait(timeout=30).dead == 0
            later = client.create_plan("there is room again")
            later.remove()


def test_a_plan_not_marked_ready_can_be_removed_from_a_full_server() -> None:
    with limited(znodes=600) as client:
        plan = fill(client)
        with plain_client(client.transport.hosts) as znodes:
            fill_up(znodes)
            plan.remove()
            assert client.plans() == []


def large() -> bytes:
    return bytes(20_000)


KEPT = "this worker keeps results until ZooKeeper has room"


@contextmanager
def overfull() -> Iterator[tuple[Client, zkplan.Plan, list[zkplan.Task], zkplan.Worker]]:
    """A client, a ready plan whose results do not fit on the server, its tasks, and a worker."""
    with limited(tree_bytes=400_000) as client:
        plan = client.create_plan("more than the server holds")
        made = plan.add_tasks([TaskSpec(large, attempts=1, keep=True) for _ in range(40)])
        plan.mark_ready()
        with working(client.transport.hosts, ROOT, grace=0.5) as worker:
            yield client, plan, made, worker


def fill_up(znodes: KazooClient) -> None:
    """Create znodes until not a single one is let in."""
    znodes.ensure_path("/filler")
    with pytest.raises(QuotaExceededError):
        until_refused(lambda: znodes.create("/filler/x", sequence=True))


def test_results_that_find_no_room_wait_and_cost_no_attempt(told: Told) -> None:
    with overfull() as (client, plan, made, _), plain_client(client.transport.hosts) as znodes:
        told(KEPT)
        assert plan.status().dead == 0
        # Each result that its author takes away makes room for another one.
        taken: set[str] = set()
        while len(taken) < len(made):
            for task in made:
                path = f"{plan.path}/results/{task.number}"
                if task.number not in taken and znodes.exists(path):
                    assert task.result(timeout=5) == large()
                    znodes.delete(path)
                    taken.add(task.number)
        status = plan.wait(timeout=60)
        assert (status.dead, status.tasks) == (0, 0)
    told("this worker no longer keeps results")


def test_a_worker_drops_waiting_results_when_their_plan_is_removed(told: Told) -> None:
    with overfull() as (_, plan, *_):
        told(KEPT)
        plan.remove()
        told("this worker no longer keeps results")


def test_claims_that_find_no_room_are_logged_once(
    told: Told, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each refusal names another znode, and comes once a second."""
    refused: list[str] = []
    note = Claimer._note_room

    def noted(self: Claimer, view: PlanView, made: Claimed) -> None:
        refused.extend([str(made.no_room)] * (made.no_room is not None))
        note(self, view, made)

    monkeypatch.setattr(Claimer, "_note_room", noted)
    monkeypatch.setattr(plan_view, "NO_ROOM_REST_S", 0.05)
    with limited(znodes=600) as client, plain_client(client.transport.hosts) as znodes:
        plan = client.create_plan("waits for room")
        plan.add_tasks([TaskSpec(int) for _ in range(20)])
        plan.mark_ready()
        plan.pause()
        with working(client.transport.hosts, ROOT):
            wait_until(client.workers, "registered")
            fill_up(znodes)
            plan.resume()
            wait_until(lambda: len(set(refused)) > 2, "refused for several znodes")
            znodes.delete("/filler", recursive=True)
            assert plan.wait(timeout=30).tasks == 0
        told("there is room for claims again")
    assert caplog.text.count("claims wait until there is room for them: ") == 1
    assert caplog.text.count("there is room for claims again") == 1


def test_results_beyond_the_bound_of_waiting_results_are_handed_back(
    monkeypatch: pytest.MonkeyPatch, told: Told
) -> None:
    monkeypatch.setattr(kept_results, "KEPT_MAX", 1)
    with overfull() as (_, plan, _, worker):
        wait_until(lambda: worker.statistics().handed_back >= 2, "handed back")
        assert (plan.status().dead, worker.statistics().failed) == (0, 0)
        told("has no room for its results")
        view = worker._loop.candidates.views[plan.number]
        assert view.avoid_s == 0, "the plan is not to blame"
        assert view.left.is_new
        wait_until(lambda: plan.status().runnable, "runnable again")


def test_a_stopping_worker_hands_back_its_waiting_results(told: Told) -> None:
    with overfull() as (client, plan, _, worker):
        told(KEPT)
        worker.stop(0.5)
        assert standing_claims(client) == 0
        assert plan.status().dead == 0


def test_consumers_run_before_more_producers_if_results_lack_room() -> None:
    with limited(tree_bytes=6_000_000) as client:
        plan = client.create_plan("each result has one reader")
        made = [TaskSpec(lambda: bytes(30_000)) for _ in range(600)]  # 18 MB in all
        plan.add_tasks([*made, *(TaskSpec(len, [spec], keep=True) for spec in made)])
        plan.mark_ready()
        with working(client.transport.hosts, ROOT):
            status = plan.wait(timeout=90)
            assert (status.dead, status.outcomes) == (0, 600)


def refuse(
    monkeypatch: pytest.MonkeyPatch, is_meant: Callable[[list[str]], bool], times: int = 1
) -> list[Request]:
    """The first transactions that make znodes as meant are refused, as by a full server.

    Gives those that were refused so far.
    """
    real = Transport.submit
    refused: list[Request] = []

    def submit(self: Transport, request: Request, done: Any) -> Any:
        ops = request.ops if type(request) is Multi else ()
        made = [op.path for op in ops if type(op) is Create]
        if len(refused) == times or not made or not is_meant(made):
            return real(self, request, done)
        refused.append(request)
        # Refuse an operation of the step itself: without room for its history the step would go on.
        at = max(at for at, op in enumerate(ops) if type(op) is Create and op.path[-5:] != "/seg-")
        answer = Refused(at, Reason.FULL, ops[at].path)
        return real(self, Multi([Check("/")]), lambda _, error: done(answer, error))

    monkeypatch.setattr(Transport, "submit", submit)
    return refused


def is_publication(made: list[str]) -> bool:
    return "/runnable/" in made[0] and not any("/task-" in path for path in made)


def is_claim(made: list[str]) -> bool:
    return "/claims/" in made[0] and any(path.endswith("/owner") for path in made)


@pytest.mark.parametrize("is_meant", [is_claim, is_publication])
def test_a_request_refused_once_by_a_full_server_is_retried_soon(
    monkeypatch: pytest.MonkeyPatch, is_meant: Callable[[list[str]], bool]
) -> None:
    # The check publishes what was forgotten; it must not be needed.
    monkeypatch.setattr(PlanCheck, "_check", lambda *_: None)
    # Where publishing is meant, it must make an entry: no claim goes with it.
    drives = is_meant is is_claim
    monkeypatch.setattr(
        Claimer, "allowance", Claimer.allowance if drives else lambda *_: NO_ALLOWANCE
    )
    with limited() as client:
        plan = client.create_plan("a join")
        parts = plan.add_tasks([TaskSpec(int) for _ in range(3)])
        plan.add_task(max, parts)
        with working(client.transport.hosts, ROOT):
            refused = refuse(monkeypatch, is_meant)
            plan.mark_ready()
            status = plan.wait(timeout=20)
    assert (status.dead, status.tasks) == (0, 0)
    assert refused


def test_a_log_entry_that_finds_no_room_costs_no_attempt_and_leaves_no_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with limited() as client:
        plan = client.create_plan("logs")
        task = plan.add_task(logs_once, attempts=1)
        with working(client.transport.hosts, ROOT) as worker:
            refused = refuse(monkeypatch, lambda made: "/log-" in "".join(made), times=2)
            plan.mark_ready()
            assert task.result(timeout=20) == 0
            assert (worker.statistics().failed, worker.statistics().handed_back) == (0, 2)
    assert len(refused) == 2


def logs_once() -> int:
    before = len(zkplan.current().logs)
    zkplan.current().log("so far")
    return before


def test_a_task_whose_function_raises_server_full_itself_fails() -> None:
    with limited() as client:
        plan = client.create_plan("meets another server")
        task = plan.add_task(meets_a_full_server, attempts=1)
        plan.mark_ready()
        with (
            working(client.transport.hosts, ROOT),
            pytest.raises(zkplan.ServerFull, match="elsewhere"),
        ):
            task.result(timeout=20)


def meets_a_full_server() -> None:
    raise zkplan.ServerFull("elsewhere there is no room")


def test_a_worker_that_a_full_server_does_not_register_says_why(told: Told) -> None:
    with limited(znodes=600) as client:
        plan = fill(client)
        with plain_client(client.transport.hosts) as znodes:
            fill_up(znodes)
            with zkplan.connect(client.transport.hosts, root=ROOT) as own:
                worker = zkplan.Worker(own, threads=2).start()
                try:
                    told("is not registered yet")
                    told("has no more room")
                    plan.remove()
                    wait_until(client.workers, "registered once there is room")
                finally:
                    worker.stop(0)


def test_claims_that_wait_for_their_commit_are_bounded_on_a_server(
    zkplan_client: Client, worker: zkplan.Worker
) -> None:
    plan = zkplan_client.create_plan("large results")
    plan.add_tasks([TaskSpec(lambda: bytes(30_000)) for _ in range(1500)])
    most = 0
    plan.mark_ready()
    while not plan.is_drained():
        most = max(most, standing_claims(zkplan_client))
    # Four slots, the claims ahead, and the claims that may wait for their commit.
    assert 0 < most <= 4 + 160 + 640
    plan.remove()
