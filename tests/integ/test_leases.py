"""Claims under a lease: which tasks they get, what they wait for, and what they cost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import zkplan
from tests.tools.claiming import claim
from tests.tools.support import Here, key_file, plain_client, wait_until
from zkplan import Client, InvalidTask, TaskSpec
from zkplan.protocol.requests import Delete, Multi, Request, Step
from zkplan.service.lease_maintenance import DecisionDelivery
from zkplan.service.lease_records import Failed, LeasedOut
from zkplan.service.leases import Leases

SHRINK = zkplan.kind("shrink")


@pytest.fixture
def author(here: Here) -> Iterator[Client]:
    with zkplan.connect(*here, serializer="json") as client:
        yield client


@pytest.fixture
def leases(here: Here) -> Iterator[Leases]:
    with zkplan.connect(*here, serializer="json") as client:
        client.prepare()
        with Leases(client) as made:
            yield made


def args_of(found: list[LeasedOut]) -> list[Any]:
    return [each.args[0] for each in found]


def test_a_claim_takes_its_kinds_by_priority_and_leaves_functions_to_workers(
    author: Client, leases: Leases
) -> None:
    plan = author.create_plan()
    plan.add_tasks(
        [
            TaskSpec(len, ["python"]),
            *(TaskSpec(SHRINK, [n], priority=n) for n in range(3)),
            TaskSpec(zkplan.kind("grow"), [9]),
            TaskSpec(SHRINK, [7], queue="gpu"),
        ]
    )
    assert claim(leases, kinds=["shrink"]) == [], "the plan is not marked ready"
    plan.mark_ready()
    assert args_of(claim(leases, kinds=["shrink"], count=2, wait=5)) == [2, 1]
    assert args_of(claim(leases, ["gpu", "default"], count=5, wait=5)) == [7]
    assert sorted(args_of(claim(leases, count=5, wait=5))) == [0, 9]
    assert claim(leases, count=5) == []
    assert plan.status().runnable == 1


def test_results_flow_between_programs_and_failures_arrive_as_values(
    author: Client, leases: Leases
) -> None:
    plan = author.create_plan(attempts=1)
    good, bad = plan.add_task(SHRINK, ["good"]), plan.add_task(SHRINK, ["bad"])
    last = plan.add_task(SHRINK, [[good, bad]], {"all": True}, run_if="all_finished", keep=True)
    plan.mark_ready()
    first, second = claim(leases, count=5, wait=5)
    assert [each.ok for each in leases.complete([(first.id, {"rows": [1, None]})])] == [True]
    assert [each.ok for each in leases.fail([Failed(second.id, "too small", "Tiny")])] == [True]
    (joined,) = claim(leases, count=5, wait=5)
    failed = {"failed": {"kind": "Tiny", "message": "too small"}}
    assert (joined.args, joined.kwargs) == ([[{"rows": [1, None]}, failed]], {"all": True})
    assert leases.complete([(joined.id, 1), ("lease-1.0/nonsense", 2)])[0].ok
    assert last.result() == 1


def test_an_idle_claim_costs_no_request_and_is_woken_by_a_task(
    author: Client, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = author.create_plan()
    plan.mark_ready()
    assert claim(leases, wait=3) == []  # from here on all is watched
    sent, queue = list[object](), leases.candidates._transport._requests
    submit = queue.submit

    def counted(request: Any, done: Any) -> Any:
        sent.append(request)
        return submit(request, done)

    monkeypatch.setattr(queue, "submit", counted)
    assert claim(leases, wait=2.5) == []
    assert sent == []
    found: list[LeasedOut] = []
    waiting = threading.Thread(target=lambda: found.extend(claim(leases, wait=20)))
    waiting.start()
    plan.add_task(SHRINK, [1])
    waiting.join(10)
    assert args_of(found) == [1]


def test_a_lapsed_claim_is_given_again_without_a_worker(author: Client, leases: Leases) -> None:
    plan = author.create_plan(attempts=2, on_failure="cascade")
    task = plan.add_task(SHRINK, [1])
    plan.mark_ready()
    numbers = []
    for _ in range(3):  # the first loss is free, as that of a worker
        (found,) = claim(leases, lease=1, wait=20)
        numbers.append(found.attempt)
    assert numbers == [0, 1, 2]
    wait_until(lambda: claim(leases) == [] and plan.status().state == "failed", "the plan ends")
    with pytest.raises(zkplan.TaskFailed, match="WorkerLost"):
        task.result()
    (late,) = leases.complete([(found.id, 1)])
    assert (late.ok, late.refused) == (False, "ended")


def test_tasks_lost_in_their_last_attempt_are_given_out_one_at_a_time(
    author: Client, leases: Leases
) -> None:
    plan = author.create_plan(attempts=1)
    plan.add_tasks([TaskSpec(SHRINK, [n]) for n in range(3)])
    plan.mark_ready()
    assert len(claim(leases, count=3, lease=1, wait=5)) == 3
    # Which of them was to blame for the loss is not known yet.
    again = claim(leases, count=3, wait=20)
    assert len(again) == 1
    assert leases.complete([(again[0].id, None)])[0].ok


def test_limits_hold_for_leases(author: Client, leases: Leases) -> None:
    author.set_limit("api", 2)
    plan = author.create_plan()
    plan.add_tasks([TaskSpec(SHRINK, [n], limits=["api"]) for n in range(3)])
    plan.mark_ready()
    first = claim(leases, count=3, wait=5)
    assert len(first) == 2
    assert claim(leases) == []
    assert leases.log(first[0].id, 1, "begun").ok
    assert all(each.ok for each in leases.complete([(each.id, 1) for each in first]))
    assert len(claim(leases, count=3, wait=10)) == 1


def test_a_result_that_cannot_be_committed_is_refused_and_the_claim_remains(
    author: Client, leases: Leases
) -> None:
    plan = author.create_plan()
    task = plan.add_task(SHRINK, [1], keep=True)
    plan.mark_ready()
    (found,) = claim(leases, wait=5)
    (large,) = leases.complete([(found.id, "x" * 2_000_000)])
    assert (large.ok, large.refused) == (False, "invalid")
    assert leases.renew([found.id])[0].ok
    assert leases.complete([(found.id, 5)])[0].ok
    assert task.result() == 5
    wrong: list[dict[str, Any]] = [{"kinds": ["A b"]}, {"kinds": [".."]}, {"queues": ["."]}]
    for each in wrong:
        with pytest.raises(InvalidTask):
            claim(leases, **each)


def test_a_lease_with_keys_claims_and_commits_sealed_tasks(here: Here, tmp_path: Any) -> None:
    keys = [key_file(tmp_path, "work")]
    with zkplan.connect(*here, serializer="json", secret_files=keys) as author:
        plan = author.create_plan()
        task = plan.add_task(SHRINK, [1], keep=True)
        plan.mark_ready()
        with Leases(author) as leases:
            (found,) = claim(leases, wait=5)
            assert leases.complete([(found.id, 5)])[0].ok
        assert task.result() == 5


def test_a_python_worker_runs_the_functions_it_has_and_leaves_other_kinds(
    here: Here, author: Client, leases: Leases
) -> None:
    @zkplan.kind("count")
    def count(words: list[str]) -> int:
        return len(words)

    plan = author.create_plan()
    mine = plan.add_task(count, [["a", "b"]], keep=True)
    other = plan.add_task(SHRINK, [mine], keep=True)
    plan.mark_ready()
    with zkplan.connect(*here, serializer="json") as client, zkplan.Worker(client, threads=2):
        assert mine.result(timeout=20) == 2
        (found,) = claim(leases, wait=10)
        assert found.args == [2]
        assert leases.complete([(found.id, "small")])[0].ok
        assert other.result(timeout=20) == "small"


def test_a_kind_needs_a_json_plan_and_a_valid_name(zkplan_client: Client) -> None:
    plan = zkplan_client.create_plan()
    with pytest.raises(InvalidTask, match="serializer pickle"):
        plan.add_task(SHRINK, [1])
    with pytest.raises(InvalidTask, match="1 to 40"):
        zkplan.kind("No Kind")


def test_a_service_whose_claims_node_was_deleted_delivers_a_wide_result(
    author: Client, leases: Leases, here: Here
) -> None:
    plan = author.create_plan()
    source = plan.add_task(SHRINK, [0])
    heirs = [plan.add_task(SHRINK, [n, source], keep=True) for n in range(3)]
    plan.mark_ready()
    (claimed,) = claim(leases, wait=5)
    me = leases._registration.me()
    # As after the end of its session: another one has cleared what it had.
    author.transport.run(asked(Multi([Delete(me.claims_path)])))
    large = "x" * 400_000  # three of them do not fit one transaction
    assert [each.ok for each in leases.complete([(claimed.id, large)])] == [True]
    assert leases._registration.me().worker != me.worker
    for task in claim(leases, count=5, wait=5):
        assert leases.complete([(task.id, len(task.args[1]))])[0].ok
    assert [heir.result(10) for heir in heirs] == [400_000] * 3


def asked(request: Request) -> Step[Any]:
    return (yield request)


def test_a_decision_about_a_held_task_is_delivered_although_no_worker_runs(
    author: Client, leases: Leases
) -> None:
    """Its program has another task, or none: it claims nothing while the decision waits."""
    plan = author.create_plan(on_failure="cascade")
    skipped, cancelled = plan.add_task(SHRINK, [1]), plan.add_task(SHRINK, [2])
    after = plan.add_task(SHRINK, [skipped], keep=True)
    failed = plan.add_task(SHRINK, [cancelled])
    plan.mark_ready()
    held = claim(leases, count=2, wait=5)
    assert len(held) == 2
    skipped.skip("enough")
    wait_until(lambda: after.info().state == "runnable", "the value is delivered")
    cancelled.cancel()
    wait_until(lambda: failed.info().state == "runnable", "the failure is delivered")
    assert [each.refused for each in leases.complete([(each.id, 0) for each in held])] == [
        "ended",
        "ended",
    ]
    (found,) = claim(leases, count=2, wait=5)
    assert found.args == ["enough"]


def test_a_decision_in_a_paused_plan_is_delivered_after_it_is_resumed(
    author: Client, leases: Leases
) -> None:
    plan = author.create_plan()
    skipped = plan.add_task(SHRINK, [1])
    after = plan.add_task(SHRINK, [skipped])
    plan.mark_ready()
    (held,) = claim(leases, wait=5)
    plan.pause()
    skipped.skip("enough")
    decided = DecisionDelivery(author, leases._registration, leases._claimer, leases._settler)
    assert decided.deliver([held.id.partition("/")[0]]), "it waits, and is not forgotten"
    plan.resume()
    decided.deliver([])  # as if its lease had lapsed meanwhile
    wait_until(lambda: after.info().state == "runnable", "the value is delivered")


@pytest.mark.parametrize(
    "kind", ["workers/service.", "claims/service.", "claims/lease-", "claims/lease-/CLAIM"]
)
def test_znodes_of_a_service_may_be_deleted_by_hand(
    author: Client, leases: Leases, here: Here, kind: str
) -> None:
    plan = author.create_plan()
    task = plan.add_task(SHRINK, [1], keep=True)
    plan.mark_ready()
    (claimed,) = claim(leases, wait=10, lease=600)
    with plain_client(here[0]) as znodes:
        folder, name, *below = kind.split("/")
        path = f"{author.root}/{folder}"
        path += "/" + next(each for each in znodes.get_children(path) if each.startswith(name))
        if below:
            path += "/" + znodes.get_children(path)[0]
        znodes.delete(path, recursive=True)
    (outcome,) = leases.complete([(claimed.id, "small")])
    assert (outcome.ok, outcome.refused) == ((False, "lapsed") if "lease" in kind else (True, ""))
    if not outcome.ok:
        assert plan.check(False).problems
        assert plan.check().mended
        (again,) = claim(leases, wait=10, lease=600)
        assert leases.complete([(again.id, "small")])[0].ok
    assert plan.wait(30).state == "done"
    assert task.result(5) == "small"
