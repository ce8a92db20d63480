"""An attacker without a key moves, records and forges znodes: none of them is run or reported.

At b4e8416 each of these attacks succeeded, with the same key given to all clients and workers.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.stores import damaged
from tests.tools.support import Here, Told, note, notes, pass_gate, secret_of, wait_until, working
from zkplan import Client, Plan, Task
from zkplan.errors import PayloadUndecodable
from zkplan.protocol.core.add import NewTask, task_ops
from zkplan.protocol.layout import PLAN_FIXED, active_entry
from zkplan.protocol.records import PlanRecord, control_to_bytes
from zkplan.protocol.requests import Applied, Create, Multi, ReadData
from zkplan.values.keyring import without_proof

WAIT_S = 30.0
ToldOnce: TypeAlias = Callable[..., None]


@pytest.fixture
def sealing(here: Here) -> Iterator[Client]:
    """A client with a key; `znodes` is the one without."""
    with zkplan.connect(*here, secret=secret_of("ours")) as client:
        yield client


@pytest.fixture
def worker(here: Here) -> Iterator[zkplan.Worker]:
    with working(*here, secret=secret_of("ours")) as running:
        yield running


@pytest.fixture
def told_once(caplog: pytest.LogCaptureFixture) -> ToldOnce:
    """The log has one line for each of these places, and for no other."""

    def check(*paths: str) -> None:
        lines = [record.getMessage() for record in caplog.records]
        refused = [line.partition(" is not used: ")[0] for line in lines if "is not used" in line]
        named = [line.rpartition(" ")[2] for line in refused]  # its plan may stand before
        assert sorted(named) == sorted(paths)

    return check


def pay(file: str, amount: Any, *_: Any) -> str:
    note(file, f"paid {amount}")
    return f"paid {amount}"


def run_shell(command: str) -> str:
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=False).stdout


def failure_of(task: Task) -> str:
    """Why it has failed for good."""
    wait_until(lambda: task.plan.status().dead, f"{task} is dead")
    with pytest.raises(Exception, match=r"place|any key|is the outcome of") as caught:
        task.result(WAIT_S)
    return str(caught.value)


def swap(znodes: KazooClient, one: str, other: str) -> None:
    mine, theirs = znodes.get(one)[0], znodes.get(other)[0]
    znodes.set(one, theirs)
    znodes.set(other, mine)


def swapped_edges(znodes: KazooClient, *tasks: Task) -> list[str]:
    """Swap the edges of two tasks that have one each; gives their paths."""
    edges = []
    for task in tasks:
        (name,) = (each for each in znodes.get_children(task.path) if each.startswith("prov-"))
        edges.append(f"{task.path}/{name}")
    swap(znodes, *edges)
    return edges


def copy(znodes: KazooClient, path: str) -> dict[str, bytes]:
    """What stands below `path`."""
    found = {"": znodes.get(path)[0]}
    for name in znodes.get_children(path):
        found |= {f"/{name}{rest}": data for rest, data in copy(znodes, f"{path}/{name}").items()}
    return found


def replay(znodes: KazooClient, root: str, recorded: dict[str, bytes], number: str = "") -> str:
    """Make a plan of what was recorded, with its versions, and have workers look at it."""
    path = znodes.create(f"{root}/plan-{number}", recorded[""], sequence=not number)
    for name, data in recorded.items():
        if name and not name.endswith("/owner"):
            znodes.create(path + name, data)
            if name.startswith("/task-") and name.endswith("/ready"):
                for _ in range(int(data) + 1):
                    znodes.set(path + name, data)
    znodes.create(f"{root}/active/{path[-10:]}")
    return str(path)


def arrive(plan: Plan, znodes: KazooClient, task: Task, value: bytes) -> None:
    """Give a task its one argument, as a worker does that has run what it waits for."""
    znodes.create(f"{task.path}/arg-0000000000", value)
    znodes.delete(f"{task.path}/dep-0000000000")
    for _ in range(2):
        znodes.set(f"{task.path}/ready", b"1")
    znodes.create(f"{plan.path}/runnable/5000-{task.number}.0.0")


def test_one_changed_byte_of_signed_data_without_a_digest_is_refused(
    sealing: Client, worker: zkplan.Worker, znodes: KazooClient
) -> None:
    plan = sealing.create_plan()
    task = plan.add_task(pay, ["nowhere", 1])
    data = znodes.get(task.path)[0]
    assert without_proof(data)[:19] == b"e3T" + b"\x00\xff" * 8
    znodes.set(task.path, damaged(data))
    plan.mark_ready()
    assert "it was not sealed for this place: it was changed" in failure_of(task)


@pytest.mark.usefixtures("worker")
def test_a_signed_value_of_one_task_is_refused_as_an_argument_of_another(
    sealing: Client, znodes: KazooClient, tmp_path: Path, told_once: ToldOnce
) -> None:
    file = str(tmp_path / "paid")
    with sealing.create_plan() as plan:
        small, large = (plan.add_task(int, [n], keep=True) for n in (1, 1000))
        plan.add_task(pass_gate, [str(tmp_path / "gate")])
    assert [small.result(WAIT_S), large.result(WAIT_S)] == [1, 1000]
    plan.pause()
    ours = plan.add_task(pay, [file, small], attempts=1)
    theirs = plan.add_task(pay, [file, large], attempts=1)
    paths = [f"{task.path}/arg-0000000000" for task in (ours, theirs)]
    swap(znodes, *paths)
    plan.resume()
    assert "arg-0000000000" in failure_of(ours)
    wait_until(lambda: plan.status().dead == 2, "both have failed")
    (tmp_path / "gate").touch()
    assert notes(file) == []
    told_once(*paths)


@pytest.mark.usefixtures("worker")
def test_a_moved_result_is_not_run_as_the_command_of_a_signed_shell_task(
    sealing: Client, znodes: KazooClient, tmp_path: Path, told_once: ToldOnce
) -> None:
    with sealing.create_plan() as plan:
        comment = plan.add_task(str, [f"touch {tmp_path}/owned"], keep=True)
        gate = plan.add_task(pass_gate, [str(tmp_path / "gate")])
        shell = plan.add_task(run_shell, [gate], attempts=1)
    comment.result(WAIT_S)
    value = znodes.get(f"{plan.path}/results/{comment.number}")[0]
    arrive(plan, znodes, shell, f"{gate.number}=".encode() + value)
    assert shell.path in failure_of(shell)
    assert not (tmp_path / "owned").exists()
    told_once(f"{shell.path}/arg-0000000000")
    (tmp_path / "gate").touch()


def test_a_recorded_plan_does_not_run_again_as_another_or_in_its_old_place(
    sealing: Client, here: Here, znodes: KazooClient, tmp_path: Path, told: Told
) -> None:
    file = str(tmp_path / "paid")
    with sealing.create_plan() as plan:
        plan.add_task(pay, [file, 5])
    recorded = copy(znodes, plan.path)
    with working(*here, secret=secret_of("ours")):
        plan.wait(WAIT_S)
        plan.remove()
        number = plan.number
        for at in ("", number):
            path = replay(znodes, sealing.root, recorded, at)
            told(f"{path}/ready is not used" if at else f"{path} is not used")
    assert notes(file) == ["paid 5"]


@pytest.mark.parametrize("how", ["plain", "recorded", "made anew"])
def test_a_cancelled_plan_stays_cancelled_when_its_state_is_overwritten(
    how: str, sealing: Client, here: Here, znodes: KazooClient, tmp_path: Path, told: Told
) -> None:
    file = str(tmp_path / "paid")
    plan = sealing.create_plan()
    plan.add_task(pay, [file, 5])
    plan.mark_ready()
    path = f"{plan.path}/ready"
    running = znodes.get(path)[0] if how == "recorded" else b'{"state":"running"}'
    if how == "made anew":
        running = znodes.get(path)[0]
    plan.cancel()
    if how == "made anew":
        znodes.delete(path)
        znodes.create(path, running)
        znodes.set(path, running)
    else:
        znodes.set(path, running)
    znodes.create(f"{plan.path}/add-count")
    znodes.create(f"{sealing.root}/active/{plan.number}")
    with working(*here, secret=secret_of("ours")):
        told(f"{path} is not used")
        with pytest.raises(PayloadUndecodable, match="ready"):
            plan.wait(WAIT_S)
        with sealing.create_plan() as other:
            other.add_task(int)
        other.wait(WAIT_S)
    with pytest.raises(PayloadUndecodable, match="ready"):
        plan.resume()
    assert notes(file) == []


def test_a_wait_does_not_report_a_forged_end(
    sealing: Client, znodes: KazooClient, told_once: ToldOnce, caplog: pytest.LogCaptureFixture
) -> None:
    with sealing.create_plan() as other:
        pass
    assert other.is_drained()
    with sealing.create_plan() as plan:
        plan.add_task(int)
    for data in (b'{"when":1.0,"failed":0}', znodes.get(f"{other.path}/done")[0]):
        znodes.create(f"{plan.path}/done", data)
        with pytest.raises(PayloadUndecodable, match="done is not used"):
            plan.wait(1)
        assert not plan.is_drained()
        told_once(f"{plan.path}/done")
        caplog.clear()
        znodes.delete(f"{plan.path}/done")


def test_swapped_edges_do_not_swap_results_and_a_check_names_them(
    sealing: Client, here: Here, znodes: KazooClient, tmp_path: Path, told_once: ToldOnce
) -> None:
    file = str(tmp_path / "paid")
    with sealing.create_plan(attempts=1) as plan:
        small, large = plan.add_task(int, [1]), plan.add_task(int, [1000])
        paid = [plan.add_task(pay, [file, task]) for task in (small, large)]
    edges = swapped_edges(znodes, small, large)
    problems = plan.check(repair=False).problems
    assert sorted(each.partition(" is not used: ")[0] for each in problems) == sorted(edges)
    with working(*here, secret=secret_of("ours")):
        wait_until(lambda: plan.status().dead == 2, "both have failed")
    arguments = [f"{task.path}/arg-0000000000" for task in paid]
    errors = [letter.error for _, letter in plan.dead()]
    assert all(map(str.__contains__, sorted(errors), sorted(arguments)))
    assert notes(file) == []
    told_once(*arguments)


def test_a_task_that_refuses_an_argument_fails_its_dependents(
    sealing: Client, here: Here, znodes: KazooClient, tmp_path: Path
) -> None:
    file = str(tmp_path / "paid")
    with sealing.create_plan(attempts=1, on_failure="cascade") as plan:
        sources = [plan.add_task(int, [n]) for n in (1, 1000)]
        paid = [plan.add_task(pay, [file, task]) for task in sources]
        behind = plan.add_task(pay, [file, paid[0]])
    swapped_edges(znodes, *sources)
    with working(*here, secret=secret_of("ours")):
        wait_until(plan.is_drained, "nothing waits for ever")
    failures = {number: letter.error for number, letter in plan.dead()}
    assert failures[behind.number].startswith("UpstreamFailed")
    assert notes(file) == []


@pytest.mark.usefixtures("worker")
def test_a_moved_result_is_not_returned_for_another_task(
    sealing: Client, znodes: KazooClient, told_once: ToldOnce
) -> None:
    with sealing.create_plan() as plan:
        one, other = plan.add_task(int, [1]), plan.add_task(int, [2])
    plan.wait(WAIT_S)
    paths = [f"{plan.path}/results/{task.number}" for task in (one, other)]
    swap(znodes, *paths)
    for task in (one, other):
        with pytest.raises(PayloadUndecodable, match=f"results/{task.number} is not used"):
            sealing.plan(plan.path).task(task.number).result(WAIT_S)
    # Nor is it taken for an argument of a task that is added.
    assert {found.kind for found in plan.outcomes()} == {"undecodable"}
    told_once(*paths)


@pytest.mark.usefixtures("worker")
def test_a_forged_dead_letter_and_a_forged_definition_are_refused(
    sealing: Client, znodes: KazooClient, tmp_path: Path, told_once: ToldOnce
) -> None:
    file = str(tmp_path / "paid")
    with sealing.create_plan() as plan:
        bad = plan.add_task(int, ["x"], attempts=1)
    wait_until(lambda: plan.status().dead, "it is dead")
    znodes.set(f"{plan.path}/dead/{bad.number}", b'{"rank":"5000","n":0,"a":1}')
    with pytest.raises(PayloadUndecodable, match="cannot be retried"):
        bad.retry()
    # A failure counts beside its dead letter alone.
    refused = [f"{plan.path}/{room}/{bad.number}" for room in ("dead", "results")]
    told_once(*refused)
    plan.pause()
    tasks = [plan.add_task(pay, [file, n]) for n in (1, 2)]
    swap(znodes, tasks[0].path, tasks[1].path)
    plan.resume()
    wait_until(lambda: plan.status().dead == 3, "both have failed")
    assert notes(file) == []
    told_once(*refused, *(task.path for task in tasks))


def test_tasks_sealed_with_their_new_plan_run_there_and_in_no_later_plan(
    sealing: Client, here: Here, znodes: KazooClient, tmp_path: Path, told: Told
) -> None:
    """As a schedule makes a plan: with its task and its state, in one transaction."""
    file = str(tmp_path / "paid")
    draft = sealing.create_plan()
    record = sealing.transport.ask(ReadData(draft.add_task(pay, [file, 5]).path)).data
    number = f"{int(draft.number) + 1:010d}"
    path = f"{sealing.root}/plan-{number}"
    known = PlanRecord("made at once", "uid", 0.0).to_bytes()
    ops: list[Any] = [Create(f"{sealing.root}/plan-", known, sequence=True, becomes=path)]
    ops += [Create(f"{path}/{name}") for name in PLAN_FIXED]
    ops += task_ops(path, NewTask("pay", "5000", record, []), "0000000005", {})
    ops += [Create(f"{path}/ready", control_to_bytes("running")), Create(active_entry(path))]
    assert isinstance(sealing.transport.ask(Multi(ops)), Applied)
    recorded = copy(znodes, path)
    with working(*here, secret=secret_of("ours")):
        sealing.plan(path).wait(WAIT_S)
        sealing.plan(path).remove()
        replay(znodes, sealing.root, recorded, number)
        told(f"{path}/ready is not used")
    assert notes(file) == ["paid 5"]


def test_a_worker_obeys_no_order_that_was_not_sealed_for_it(
    sealing: Client, here: Here, znodes: KazooClient, told: Told
) -> None:
    quick: Any = {"secret": secret_of("ours"), "session_timeout": 2.0}
    with working(*here, **quick) as one, working(*here, **quick) as other:
        mine, theirs = (f"{sealing.root}/workers/{each.id}" for each in (one, other))
        with (
            zkplan.connect(*here) as stranger,
            pytest.raises(zkplan.ZkplanError, match="takes no order of this client"),
        ):
            stranger.drain_worker(one.id)
        sealing.pause_worker(other.id)
        wait_until(lambda: other._loop.claims.paused, "who has the key is heard")
        znodes.set(mine, b'{"state":"draining"}')
        told(f"{mine} is not used: it is not sealed")
        znodes.set(mine, znodes.get(theirs)[0])
        told(f"{mine} is not used: it was not sealed for this place")
        znodes.set(theirs, b'{"state":"running"}')
        told(f"{theirs} is not used: it is not sealed")
        assert [each._loop.membership.state for each in (one, other)] == ["running", "paused"]


def test_nobody_without_a_key_can_open_a_gate(
    sealing: Client, here: Here, znodes: KazooClient, tmp_path: Path, told: Told
) -> None:
    file, other = str(tmp_path / "paid"), sealing.create_plan()
    ends = [f"{other.path}/done", "/never", "/never"]
    with sealing.create_plan(attempts=1) as plan:
        gates = [plan.add_task(zkplan.when(path)) for path in ends]
        for gate in gates:
            plan.add_task(pay, [file, gate])
    for name in znodes.get_children(f"{sealing.root}/gates"):
        if gates[2].number in name:
            znodes.delete(f"{sealing.root}/gates/{name}")
    znodes.set(f"{gates[1].path}/gate", znodes.get(f"{gates[0].path}/gate")[0])
    znodes.create(ends[0], b'{"when":1.0,"failed":0}')
    znodes.create(f"{plan.path}/runnable/5000-{gates[2].number}.0.0")
    with working(*here, secret=secret_of("ours")):
        told(f"{gates[1].path}/gate is not used")
        told(f"{ends[0]} is not used")
        wait_until(
            lambda: plan.status().dead == 1, "who was let in without its argument has failed"
        )
        assert gates[2].number in dict(plan.dead())
    assert notes(file) == []
