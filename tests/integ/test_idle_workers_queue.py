"""Idle workers queue: the first looks for work, the others sleep until there is more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.tools.support import WAIT_S, pass_gate, wait_until, working
from zkplan import Client, Worker
from zkplan.runtime import idle_queue

FLEET = 4


class Fleet:
    """Some workers with one slot each, and the places of those that are idle."""

    def __init__(self, znodes: KazooClient, root: str, workers: list[Worker]) -> None:
        self._znodes, self.folder, self.workers = znodes, f"{root}/idle", workers

    def places(self) -> dict[str, int]:
        """The transaction that made each place, by its name."""
        if self._znodes.exists(self.folder) is None:
            return {}
        stats = {
            name: self._znodes.exists(f"{self.folder}/{name}")
            for name in self._znodes.get_children(self.folder)
        }
        return {name: stat.czxid for name, stat in stats.items() if stat is not None}

    def wait_for_places(self, count: int) -> None:
        wait_until(lambda: len(self.places()) == count, f"{count} are idle")

    def sleep(self) -> dict[str, int]:
        """Wait until all have a place, and only the first is awake."""

        def asleep() -> dict[str, int] | None:
            before = self.places()
            awake = [each for each in self.workers if not each._loop.idle_queue.is_asleep]
            return before if len(before) == len(self.workers) and len(awake) == 1 else None

        found: dict[str, int] = wait_until(asleep, "all but the first sleep")
        return found


@pytest.fixture
def fleet(
    zkplan_client: Client,
    zookeeper_hosts: str,
    znodes: KazooClient,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Fleet]:
    monkeypatch.setattr(idle_queue, "IDLE_S", 0.05)
    root = zkplan_client.root
    with ExitStack() as stack:
        each = [stack.enter_context(working(zookeeper_hosts, root, 1)) for _ in range(FLEET)]
        yield Fleet(znodes, root, each)


def reached(gates: list[Path]) -> bool:
    return all(Path(f"{gate}-reached").exists() for gate in gates)


def open_all(gates: list[Path]) -> None:
    for gate in gates:
        gate.touch()


def test_short_tasks_wake_nobody(
    fleet: Fleet, zkplan_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_queue, "LEAVE_S", WAIT_S)  # a task is short, however slow the machine
    before = fleet.sleep()
    for _ in range(5):
        with zkplan_client.create_plan() as plan:
            task = plan.add_task(int, keep=True)
        assert task.result(WAIT_S) == 0
    assert fleet.places() == before


def test_a_plan_wakes_as_many_workers_as_it_has_tasks(
    fleet: Fleet, zkplan_client: Client, tmp_path: Path
) -> None:
    gates = [tmp_path / str(number) for number in range(FLEET)]
    fleet.sleep()
    with zkplan_client.create_plan() as plan:
        for gate in gates:
            plan.add_task(pass_gate, [str(gate)])
    wait_until(lambda: reached(gates), "each worker runs one")
    open_all(gates)
    plan.wait(WAIT_S)
    fleet.sleep()


def test_the_next_looks_while_the_first_is_busy(
    fleet: Fleet, zkplan_client: Client, tmp_path: Path
) -> None:
    gates = [tmp_path / str(number) for number in range(FLEET)]
    fleet.sleep()
    for count in range(1, FLEET + 1):
        with zkplan_client.create_plan() as plan:
            plan.add_task(pass_gate, [str(gates[count - 1])])
        wait_until(partial(reached, gates[:count]), "another worker runs it")
        fleet.wait_for_places(FLEET - count)
    open_all(gates)
    fleet.sleep()


def test_a_late_copy_of_a_place_is_removed(
    fleet: Fleet, zkplan_client: Client, znodes: KazooClient, tmp_path: Path
) -> None:
    """Else the others would sleep on behind a busy worker."""
    before = fleet.sleep()
    with zkplan_client.create_plan() as plan:
        plan.add_task(pass_gate, [str(tmp_path / "gate")])
    fleet.wait_for_places(FLEET - 1)
    (busy,) = before.keys() - fleet.places().keys()
    place = f"{fleet.folder}/{busy}"
    znodes.create(place)
    wait_until(lambda: znodes.exists(place) is None, "the place is left again")
    (tmp_path / "gate").touch()
    plan.wait(WAIT_S)
