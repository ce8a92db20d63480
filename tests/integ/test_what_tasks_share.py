"""Large functions and constants lie in a plan once, and go when nothing needs them."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest

import zkplan
from tests.tools.claiming import claim
from tests.tools.support import Here, working
from zkplan import Client
from zkplan.author.export import export_plan, import_plan
from zkplan.errors import ForeignTask, InvalidTask, PayloadRefused, StoredValueLost
from zkplan.protocol.layout import SHARED
from zkplan.service.leases import Leases
from zkplan.values.keyring import AES, SECRET, new_key

MB = 1_000_000


def parts(plan: zkplan.Plan) -> list[str]:
    """The names of what the tasks of the plan share."""
    names = plan._client.transport.client.get_children(f"{plan.path}/add-ids")
    return sorted(name for name in names if name.startswith(SHARED))


def stored_bytes(client: Client, path: str) -> int:
    znodes = client.transport.client
    data, _ = znodes.get(path)
    return len(data) + sum(
        stored_bytes(client, f"{path}/{name}") for name in znodes.get_children(path)
    )


def crc(data: Any, number: int = 0) -> int:
    return zlib.crc32(data if isinstance(data, bytes) else str(data).encode(), number)


def fails_until(file: str, data: bytes) -> int:
    if not Path(file).exists():
        raise ValueError("not yet")
    return len(data)


def closure_over(data: bytes) -> Any:
    return lambda number: zlib.crc32(data, number)


@pytest.fixture
def client(here: Here) -> Any:
    with zkplan.connect(*here) as client:
        yield client


def test_a_closure_over_a_megabyte_lies_in_the_plan_once(here: Here, client: Client) -> None:
    data = bytes(range(256)) * (MB // 256)
    with client.create_plan() as plan:
        tasks = plan.add_tasks(zkplan.TaskSpec(closure_over(data), [n]) for n in range(5))
        same, small = closure_over(data), closure_over(data[:9000])
        tasks += [plan.add_task(same, [n]) for n in range(5, 100)]
        plan.add_tasks(zkplan.TaskSpec(small, [n]) for n in range(9))
        plan.add_task(closure_over(data[:8000]), [1])  # nobody else uses it
    # A million bytes are two parts; the pickles of equal closures are equal.
    assert len(parts(plan)) == 3
    assert stored_bytes(client, plan.path) < 1.3 * MB
    with working(*here):
        assert plan.results(tasks, 60) == [zlib.crc32(data, n) for n in range(100)]


@pytest.mark.parametrize("serializer", ["pickle", "json"])
def test_a_constant_comes_at_any_depth_with_the_results_of_tasks(
    here: Here, serializer: Any
) -> None:
    with zkplan.connect(*here, serializer=serializer) as client:
        with client.create_plan() as plan:
            text, number = plan.constant("x" * MB), plan.constant(7)
            first = plan.add_task(crc, [text, number])
            second = plan.add_task(sorted, [[number, first, 3]])
            third = plan.add_task(crc, kwargs={"data": text, "number": first})
        allowed = {"allow": [f"{__name__}:*", "builtins:*"]} if serializer == "json" else {}
        with working(*here, serializer=serializer, of_worker=allowed):
            one = zlib.crc32(b"x" * MB, 7)
            assert second.result(30) == sorted([7, one, 3])
            assert third.result(30) == zlib.crc32(b"x" * MB, one)


def test_a_long_argument_that_tasks_of_one_block_take_is_shared(here: Here, client: Client) -> None:
    half = MB // 2
    data = b"y" * half
    with client.create_plan() as plan:
        tasks = [plan.add_task(crc, [data, n]) for n in range(9)]
    assert stored_bytes(client, plan.path) < 2.5 * half  # the first task has a copy of its own
    with working(*here):
        assert plan.results(tasks, 30) == [zlib.crc32(data, n) for n in range(9)]


def test_it_stays_for_a_retry_and_goes_with_the_end(
    here: Here, client: Client, tmp_path: Path
) -> None:
    file = tmp_path / "there"
    with client.create_plan(on_failure="cascade") as plan:
        data = plan.constant(b"d" * MB)
        task = plan.add_task(fails_until, [str(file), data], attempts=1)
    with working(*here):
        with pytest.raises(zkplan.PlanFailed):
            plan.wait(30)
        assert len(parts(plan)) == 2
        file.touch()
        assert plan.retry() == 1
        assert task.result(30) == MB
        assert plan.wait(30).state == "done"
    assert parts(plan) == []


def test_a_missing_or_damaged_part_fails_its_tasks(here: Here, client: Client) -> None:
    for damage in ("gone", "damaged"):
        with client.create_plan() as plan:
            task = plan.add_task(len, [plan.constant(b"d" * MB)])
        path = f"{plan.path}/add-ids/{parts(plan)[-1]}"
        if damage == "gone":
            client.transport.client.delete(path)
        else:
            client.transport.client.set(path, b"other")
        with (
            working(*here),
            pytest.raises(StoredValueLost, match=f"{damage} .* the plan"),
        ):
            task.result(30)


def test_an_add_after_a_retry_does_not_rely_on_what_an_ended_plan_refused(
    here: Here, client: Client, tmp_path: Path
) -> None:
    file = tmp_path / "there"
    with client.create_plan(on_failure="cascade") as plan:
        plan.add_task(fails_until, [str(file), b""], attempts=1)
    constant = plan.constant(b"late" * 100)
    with working(*here):
        with pytest.raises(zkplan.PlanFailed):
            plan.wait(30)
        with pytest.raises(zkplan.PlanDrained):
            plan.add_task(len, [constant])
    plan.retry()
    task = plan.add_task(len, [constant])
    file.touch()
    with working(*here):
        assert task.result(30) == 400


def test_a_program_that_leases_a_task_gets_its_constants(here: Here) -> None:
    with zkplan.connect(*here, serializer="json") as client, Leases(client) as leases:
        with client.create_plan() as plan:
            plan.add_task(zkplan.kind("shrink"), [1, plan.constant({"a": "b"})])
        leased = claim(leases, kinds=["shrink"], wait=10)
        assert [each.args for each in leased] == [[1, {"a": "b"}]]


def test_a_constant_holds_no_tasks(client: Client) -> None:
    with client.create_plan() as plan:
        task = plan.add_task(len, ["x"])
        with pytest.raises(InvalidTask, match="a constant cannot hold"):
            plan.constant([task])
        with pytest.raises(InvalidTask, match="after must be a list of tasks"):
            plan.add_task(len, ["x"], after=[plan.constant(1)])


def test_a_constant_of_another_plan_is_refused(client: Client) -> None:
    with client.create_plan() as one, client.create_plan() as other:
        constant = one.constant([1])
        with pytest.raises(ForeignTask, match="not one of its own plan"):
            other.add_task(len, [constant])
        one.add_task(len, [constant])


def add_more(number: int) -> None:
    plan = zkplan.current().plan
    plan.add_task(crc, [plan.constant("s" * 100_000), number], keep=True, name="added")


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_tasks_that_a_task_adds_take_constants(here: Here, client: Client, isolation: Any) -> None:
    with client.create_plan() as plan:
        plan.add_task(add_more, [5], isolation=isolation)
        taking = plan.add_task(crc, [plan.constant("s" * 100_000), 6], isolation=isolation)
    with working(*here):
        assert taking.result(30) == zlib.crc32(b"s" * 100_000, 6)
        plan.wait(30)
        assert plan.task("added").result(30) == zlib.crc32(b"s" * 100_000, 5)


@pytest.mark.parametrize("kind", [SECRET, AES])
def test_with_keys_it_is_sealed(here: Here, tmp_path: Path, kind: Any) -> None:
    file = tmp_path / "keys"
    file.touch(0o600)
    file.write_text(new_key(kind, kind).to_line() + "\n")
    with zkplan.connect(*here, secret_files=[str(file)]) as client:
        with client.create_plan() as plan:
            task = plan.add_task(crc, [plan.constant(b"secret words " * 90_000), 1])
        (first, *_) = parts(plan)
        data, _ = client.transport.client.get(f"{plan.path}/add-ids/{first}")
        assert (b"secret words" in data) == (kind == SECRET)
        assert data.startswith(b"z3")
        with client.create_plan() as moved:
            refused = moved.add_task(crc, [moved.constant(b"other"), 1])
        client.transport.client.set(f"{moved.path}/add-ids/{parts(moved)[0]}", data)
        with working(*here, secret_files=[str(file)]):
            with pytest.raises(PayloadRefused):
                refused.result(30)
            assert task.result(30) == zlib.crc32(b"secret words " * 90_000, 1)


def test_an_exported_plan_takes_it_along(here: Here, client: Client, tmp_path: Path) -> None:
    plan = client.create_plan()
    plan.add_task(crc, [plan.constant(b"e" * MB), 2], name="last")
    target = tmp_path / "plan"
    export_plan(plan, target)
    plan.remove()
    moved = client.plan(import_plan(client, target))
    moved.mark_ready()
    with working(*here):
        assert moved.task("last").result(30) == zlib.crc32(b"e" * MB, 2)
