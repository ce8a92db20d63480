"""What cannot work is refused before anything is written, with an error that says what to do."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkplan
from zkplan import (
    Client,
    ForeignTask,
    InvalidTask,
    KeeperClosed,
    KeeperUnavailable,
    NotSerialisable,
    PayloadTooLarge,
    PayloadUndecodable,
    PlanCancelled,
    PlanDrained,
    PlanError,
    PlanNotFound,
    PlanStuck,
    TaskSpec,
    WaitTimeout,
    ZkplanError,
)
from zkplan.testing.loopback import free_port

from .support import WorkerProcess, note, notes, tree, wait_until, working


def items() -> Any:
    return (number for number in range(3))


def test_an_argument_that_cannot_be_serialised_is_named(
    zkplan_client: Client, znodes: KazooClient
) -> None:
    plan = zkplan_client.create_plan()
    before = tree(znodes, plan.path)

    with pytest.raises(NotSerialisable, match=r"task 'sum up' \(sum\): its argument 1 \(<generator"):
        plan.add_task(sum, [1, items()], name="sum up")
    with pytest.raises(NotSerialisable, match=r"a task of dict: its argument 'deep' \(\[\{'x': <gen"):
        plan.add_task(dict, kwargs={"fine": 1, "deep": [{"x": items()}]})
    with pytest.raises(NotSerialisable, match="'second'"):
        plan.add_tasks([TaskSpec(int, name="first"), TaskSpec(sum, [items()], name="second")])

    assert tree(znodes, plan.path) == before


def test_a_function_that_cannot_be_serialised_is_named(
    zkplan_client: Client, znodes: KazooClient
) -> None:
    plan = zkplan_client.create_plan()
    before = tree(znodes, plan.path)
    captured = items()

    with pytest.raises(NotSerialisable, match=r"task 'mine'.*<lambda>.*generator"):
        plan.add_task(lambda: list(captured), name="mine")

    assert tree(znodes, plan.path) == before


def test_a_task_hidden_in_a_closure_or_an_object_is_refused(zkplan_client: Client) -> None:
    """It could not become an edge, and its value would be missing without a word."""

    class Holder:
        def __init__(self, inside: Any) -> None:
            self.inside = inside

    plan = zkplan_client.create_plan()
    one = plan.add_task(int)
    with pytest.raises(NotSerialisable, match="pass it as an argument"):
        plan.add_task(lambda: one)
    two = plan.add_task(lambda holder: holder.inside, [Holder(one)])
    plan.mark_ready()
    assert plan.status().added == 2
    assert two.number > one.number


def test_a_payload_too_large_is_refused_with_size_limit_and_a_way_out(
    zkplan_client: Client, znodes: KazooClient
) -> None:
    plan = zkplan_client.create_plan()
    before = tree(znodes, plan.path)

    with pytest.raises(PayloadTooLarge, match=r"task 'big'.*store the data elsewhere") as caught:
        plan.add_tasks([TaskSpec(int), TaskSpec(len, [b"x" * 1_100_000], name="big")])

    assert caught.value.size > 1_100_000
    assert 900_000 < caught.value.limit < 1_048_576
    assert tree(znodes, plan.path) == before
    plan.add_task(len, [b"x" * 900_000])
    assert plan.status().added == 1


def test_a_task_of_another_plan_is_refused(zkplan_client: Client) -> None:
    here, there = zkplan_client.create_plan(), zkplan_client.create_plan()
    foreign = there.add_task(int)
    with pytest.raises(ForeignTask, match=f"{there.path}.*a task of another plan"):
        here.add_task(str, [[foreign]], name="mixed")
    assert here.status().added == 0


def test_a_specification_that_comes_later_is_refused(zkplan_client: Client) -> None:
    plan = zkplan_client.create_plan()
    later = TaskSpec(int)
    with pytest.raises(InvalidTask, match="not added before it"):
        plan.add_tasks([TaskSpec(str, [later]), later])
    with pytest.raises(InvalidTask, match="not added before it"):
        plan.add_task(str, [TaskSpec(int)])
    assert plan.status().added == 0


@pytest.mark.parametrize("what", [None, 3, "print", [print]])
def test_what_is_not_callable_is_refused(what: Any, zkplan_client: Client) -> None:
    plan = zkplan_client.create_plan()
    with pytest.raises(InvalidTask, match=f"needs a function, not {re.escape(repr(what))}"):
        plan.add_task(what)
    assert plan.status().added == 0


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("attempts", 0),
        ("attempts", 1001),
        ("attempts", 2.0),
        ("retry_delay", -1),
        ("retry_delay", "1"),
        ("retry_delay", float("nan")),
        ("timeout", 0),
        ("timeout", -2),
        ("timeout", float("nan")),
        ("priority", 100_000),
        ("priority", 1.5),
        ("keep", "yes"),
        ("name", "x" * 201),
        ("name", 7),
    ],
)
def test_options_out_of_range_are_refused(option: str, value: Any, zkplan_client: Client) -> None:
    plan = zkplan_client.create_plan()
    with pytest.raises(InvalidTask, match=option):
        plan.add_task(int, **{option: value})
    if option != "name":
        with pytest.raises(InvalidTask, match=option):
            zkplan_client.create_plan(**{option: value})
    assert plan.status().added == 0
    assert len(zkplan_client.plans()) == 1


def test_arguments_of_the_wrong_shape_are_refused(zkplan_client: Client) -> None:
    plan = zkplan_client.create_plan()
    for args, kwargs in [(3, None), ("text", None), ([], [1]), ([], {1: 2})]:
        with pytest.raises(InvalidTask):
            plan.add_task(print, args, kwargs)  # type: ignore[arg-type]
    assert plan.status().added == 0


@pytest.mark.parametrize("name", ["", "x" * 201, 5])
def test_names_of_plans_have_bounds(name: Any, zkplan_client: Client) -> None:
    with pytest.raises(InvalidTask, match="1 to 200 characters"):
        zkplan_client.create_plan(name)
    with pytest.raises(InvalidTask, match='"hold" or "cascade"'):
        zkplan_client.create_plan(on_failure="explode")  # type: ignore[arg-type]


def test_a_plan_that_is_removed_says_so_to_every_call(zkplan_client: Client) -> None:
    plan = zkplan_client.create_plan()
    task = plan.add_task(int)
    again = zkplan_client.plan(plan.path)
    plan.remove()
    for call in (
        lambda: plan.add_task(int),
        lambda: plan.add_task(str, [task]),
        lambda: again.add_task(int),
        plan.mark_ready,
        plan.pause,
        plan.cancel,
        plan.status,
        plan.is_drained,
        plan.retry,
        plan.remove,
        lambda: plan.wait(5),
        lambda: task.result(5),
        lambda: zkplan_client.plan(plan.path),
    ):
        with pytest.raises(PlanNotFound):
            call()


def test_a_cancelled_plan_takes_no_tasks_and_never_goes_on(zkplan_client: Client) -> None:
    plan = zkplan_client.create_plan()
    first = plan.add_task(int)
    plan.cancel()
    plan.cancel()
    for call in (
        lambda: plan.add_task(int),
        lambda: zkplan_client.plan(plan.path).add_task(str, [first]),
        plan.mark_ready,
        plan.resume,
        plan.pause,
        lambda: plan.wait(5),
        lambda: first.result(5),
    ):
        with pytest.raises(PlanCancelled, match="was cancelled"):
            call()
    status = plan.status()
    assert (status.state, status.tasks, status.added) == ("cancelled", 1, 1)


@pytest.mark.usefixtures("worker")
def test_a_drained_plan_says_so(zkplan_client: Client) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(int)
    plan.wait(30)
    for call in (lambda: plan.add_task(int), plan.pause, plan.resume, plan.cancel):
        with pytest.raises(PlanDrained, match="is done"):
            call()
    plan.mark_ready()
    assert task.result(5) == 0
    assert plan.is_drained()


def test_a_plan_that_is_not_there_is_not_found(zkplan_client: Client) -> None:
    zkplan_client.create_plan("exists")
    for which in ("missing", 77, "0000000077", f"{zkplan_client.root}/plan-0000000077", "/elsewhere"):
        with pytest.raises(PlanNotFound):
            zkplan_client.plan(which)


def test_a_number_that_is_no_task_is_refused(zkplan_client: Client) -> None:
    plan = zkplan_client.create_plan()
    for number in ("x", "-1", "12345678901", ""):
        with pytest.raises(InvalidTask):
            plan.task(number)


@pytest.mark.parametrize("root", ["", "zkplan", "/", "/a//b", "/a/../b", "/zookeeper", "/a\x00b"])
def test_a_root_that_is_no_path_is_refused(root: str, zookeeper_hosts: str) -> None:
    with pytest.raises(ZkplanError, match="root must be a path"):
        zkplan.connect(zookeeper_hosts, root=root)


def test_an_unreachable_zookeeper_is_told_within_the_connect_timeout() -> None:
    start = time.monotonic()
    with pytest.raises(KeeperUnavailable, match=r"127.0.0.1:.*within 0.5 s; is it running"):
        zkplan.connect(f"127.0.0.1:{free_port()}", connect_timeout=0.5)
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("hosts", ["", "nonsense:port", "127.0.0.1:99999"])
def test_hosts_that_make_no_sense_are_told(hosts: str) -> None:
    with pytest.raises(KeeperUnavailable):
        zkplan.connect(hosts, connect_timeout=0.5)


def test_a_closed_client_says_so(zookeeper_hosts: str, zkplan_root: str) -> None:
    client = zkplan.connect(zookeeper_hosts, root=zkplan_root)
    plan = client.create_plan()
    client.close()
    client.close()
    with pytest.raises(KeeperClosed, match="was closed"):
        plan.status()
    plan.client = zkplan.connect(zookeeper_hosts, root=zkplan_root)
    plan.remove()
    plan.client.close()


def test_a_forked_child_is_told_to_connect_anew(zkplan_client: Client, tmp_path: Path) -> None:
    plan = zkplan_client.create_plan()
    file = tmp_path / "child"
    child = os.fork()
    if child == 0:  # pragma: no cover - in another process
        try:
            plan.status()
        except KeeperClosed as error:
            note(file, str(error))
        except BaseException as error:
            note(file, repr(error))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert "connect anew in the child" in notes(file)[0]
    assert plan.status().state == "defining"


def test_a_block_that_raises_leaves_nothing_behind(
    zkplan_client: Client, znodes: KazooClient
) -> None:
    zkplan_client.prepare()
    before = tree(znodes, zkplan_client.root)
    with pytest.raises(LookupError), zkplan_client.create_plan("half") as plan:
        one = plan.add_task(int)
        plan.add_tasks([TaskSpec(str, [one]) for _ in range(50)])
        assert one.number  # sends what was added so far
        plan.add_task(str, [one])
        raise LookupError
    with pytest.raises(NotSerialisable), zkplan_client.create_plan("half") as plan:
        plan.add_task(int)
        plan.add_task(sum, [items()])
    assert tree(znodes, zkplan_client.root) == before


def test_a_block_on_a_plan_that_existed_leaves_it_as_it_was(zkplan_client: Client) -> None:
    created = zkplan_client.create_plan("mine")
    created.add_task(int)
    with pytest.raises(LookupError), zkplan_client.plan("mine") as plan:
        plan.add_task(int)
        raise LookupError
    status = zkplan_client.plan("mine").status()
    assert (status.state, status.tasks) == ("defining", 1)


def test_a_block_within_itself_is_refused(zkplan_client: Client) -> None:
    with zkplan_client.create_plan() as plan:
        with pytest.raises(PlanError, match="already open"), plan:
            pass
        plan.add_task(int)
    assert plan.status().added == 1


@pytest.mark.usefixtures("worker")
def test_a_cycle_made_with_raw_znodes_is_found_by_who_waits(
    zkplan_client: Client, znodes: KazooClient
) -> None:
    plan = zkplan_client.create_plan()
    first = plan.add_task(int)
    second = plan.add_task(str, [first])
    edge = f'{{"dep":"task-{first.number}/dep-0000000000","k":1,"entry":"5000-{first.number}"}}'
    entry = znodes.get_children(f"{plan.path}/runnable")[0]
    changes = znodes.transaction()
    changes.create(f"{first.path}/dep-0000000000")
    changes.create(f"{second.path}/prov-", edge.encode(), sequence=True)
    changes.set_data(f"{first.path}/ready", b"1")
    changes.delete(f"{plan.path}/runnable/{entry}")
    changes.commit()
    plan.mark_ready()

    names = f"task-{first.number}", f"task-{second.number}"
    with pytest.raises(PlanStuck, match=f"a cycle.*{names[0]}.*{names[1]}|{names[1]}.*{names[0]}"):
        plan.wait(30)


def test_a_wait_without_workers_times_out_and_tells_how_to_start_one(
    zkplan_client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(int)
    with pytest.raises(WaitTimeout, match="not drained after 0.2 s"):
        plan.wait(0.2)
    with pytest.raises(TimeoutError, match="no result of"):
        task.result(0.2)
    with pytest.raises(WaitTimeout):
        plan.wait(4)
    assert "no worker is registered" in caplog.text
    assert f"zkplan worker --hosts {zkplan_client.keeper.hosts}" in caplog.text


MODULE = "zkplan_test_only_here"


def test_a_worker_that_lacks_a_module_leaves_the_task_to_others(
    zookeeper_hosts: str,
    zkplan_root: str,
    zkplan_client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It uses up no attempt, however often it meets the task."""
    (tmp_path / f"{MODULE}.py").write_text(
        "import zkplan\nclass Value:\n    def __init__(self, x): self.x = x\n"
        "def work(value=None):\n    return zkplan.current()._job.claim.a, value and value.x\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = __import__(MODULE)
    with zkplan_client.create_plan(attempts=1) as plan:
        by_function = plan.add_task(module.work)
        by_value = plan.add_task(lambda value: value.x, [module.Value(5)])
        other = plan.add_task(lambda: "runs anywhere", priority=-5)
    with WorkerProcess(zookeeper_hosts, zkplan_root, tmp_path / "lacking") as lacking:
        assert other.result(30) == "runs anywhere"
        wait_until(
            lambda: lacking.said(f"No module named '{MODULE}'"), "the worker says what it lacks"
        )
        assert lacking.said("is left to others")
        with working(zookeeper_hosts, zkplan_root):
            assert by_function.result(60) == (0, None)
            assert by_value.result(60) == 5
            assert plan.wait(30).dead == 0
    sys.modules.pop(MODULE)


def test_a_worker_with_another_secret_runs_nothing(
    zookeeper_hosts: str, zkplan_root: str, tmp_path: Path
) -> None:
    file = tmp_path / "ran"
    with zkplan.connect(zookeeper_hosts, root=zkplan_root, secret="ours") as client:
        with client.create_plan(attempts=1) as plan:
            task = plan.add_task(note, [str(file), "ran"])
        with WorkerProcess(
            zookeeper_hosts, zkplan_root, tmp_path / "other", "--secret", "theirs"
        ) as other:
            wait_until(lambda: other.said("another secret"), "the worker says why it does not run")
            assert not notes(file)
            with working(zookeeper_hosts, zkplan_root, secret=b"ours"):
                assert task.result(60) is None
        assert notes(file) == ["ran"]
        with zkplan.connect(zookeeper_hosts, root=zkplan_root) as stranger:
            with pytest.raises(PayloadUndecodable, match="another secret"):
                stranger.plan(plan.path).task(task.number).result(5)


@pytest.mark.usefixtures("worker")
def test_a_znode_that_is_no_plan_stops_nobody(zkplan_client: Client, znodes: KazooClient) -> None:
    """Somebody else's znodes below the root are passed over by workers and by who lists plans."""
    zkplan_client.prepare()
    root = zkplan_client.root
    for name, data in [("plan-0000009999", b"{nonsense"), ("plan-other", b""), ("plan-", b"")]:
        znodes.create(f"{root}/{name}", data)
        znodes.create(f"{root}/{name}/ready", b"")
        znodes.create(f"{root}/{name}/runnable")
        znodes.create(f"{root}/{name}/runnable/5000-0000000001.0.0")
    with zkplan_client.create_plan("fine") as plan:
        task = plan.add_task(lambda: "runs")
    assert task.result(30) == "runs"
    plan.wait(30)
    assert plan.path in [found.path for found in zkplan_client.plans()]
    assert zkplan_client.plan("fine").path == plan.path


@pytest.mark.usefixtures("worker")
def test_damaged_znodes_of_one_task_stop_no_other(
    zkplan_client: Client, znodes: KazooClient
) -> None:
    plan = zkplan_client.create_plan(attempts=1)
    broken = plan.add_task(lambda: 1, name="broken")
    short = plan.add_task(lambda x: x, [plan.add_task(lambda: 1)], name="short")
    fine = plan.add_task(lambda: "fine")
    znodes.set(broken.path, b"z1T garbage")
    znodes.delete(f"{short.path}/dep-0000000000")
    znodes.create(f"{plan.path}/runnable/not an entry")
    znodes.create(f"{plan.path}/runnable/5000-0000099999.0.0")
    plan.mark_ready()
    assert fine.result(30) == "fine"
    assert threading.active_count() > 1
