"""The checks of queues, limits, keys and schedules find violations, and seeds draw each case."""

from __future__ import annotations

from pathlib import Path

import zkplan
from zkplan.embedded import EmbeddedServer

from .traffic import controls
from .traffic.workloads import Workload
from .validate.history import RunHistory
from .validate.limits import left, too_many
from .validate.run_checks import due_twice, passed_without_a_value


def test_one_permit_over_the_limit_is_found() -> None:
    with EmbeddedServer() as server, zkplan.connect(server.hosts) as client:
        controls.prepare(client, "/nowhere")
        for number in range(controls.LIMIT_SIZE + 1):
            assert too_many(client) == []
            path = f"{client.root}/limits/{controls.LIMIT}/permit-{number}"
            client.transport.client.create(path, b"{}")
        assert too_many(client) == ["S11 4 of 3 permits are held"]
        assert len(left(client)) == controls.LIMIT_SIZE + 1


def test_two_plans_for_one_due_time_are_found(tmp_path: Path) -> None:
    history = RunHistory(tmp_path)
    for due, path in [("1", "/z/plan-1"), ("2", "/z/plan-2"), ("1", "/z/plan-1")]:
        history.take({"event": "ticked", "at": 1.0, "due": due, "path": path}, tmp_path / "x-1")
    assert list(due_twice(history)) == []
    history.take({"event": "ticked", "at": 1.0, "due": "1", "path": "/z/plan-3"}, tmp_path / "x-1")
    assert "for 1" in next(due_twice(history))


def test_a_task_that_got_a_value_its_gate_never_had_is_found(tmp_path: Path) -> None:
    history = RunHistory(tmp_path)
    for event in ("gate opens", "passed"):
        history.take({"event": event, "at": 1.0, "value": "a"}, tmp_path / "x-1")
    assert list(passed_without_a_value(history)) == []
    history.take({"event": "passed", "at": 1.0, "value": "b"}, tmp_path / "x-1")
    assert "got 'b' of a gate" in next(passed_without_a_value(history))


def test_seeds_draw_both_queues_limits_keys_and_weights() -> None:
    made = [controls.controlled(Workload.make(seed)) for seed in range(40)]
    items = [item for workload in made for item in workload.items.values()]
    assert {item.queue for item in items} == {controls.DEFAULT, controls.SIDE}
    assert {item.limited for item in items} == {True, False}
    options = [controls.options_of(workload) for workload in made]
    assert len({each["weight"] for each in options}) == 3
    assert {each["key"] for each in options} > {None}
    # The expected results of a plan do not change.
    assert [each.digests for each in made] == [Workload.make(seed).digests for seed in range(40)]
