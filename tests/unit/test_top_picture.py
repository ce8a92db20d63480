"""The picture of `zkplan top` always fits, and shows how late each late item is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rich.cells import cell_len

from zkplan.cli.top_view import HEIGHT_MIN, WIDTH_MIN, picture
from zkplan.protocol.core.plan_life import PlanStatus
from zkplan.protocol.core.workers import WorkerRecord
from zkplan.protocol.features.schedules import Definition, Schedule, Upcoming
from zkplan.protocol.records import PlanRecord
from zkplan.views.attention import Late, late_things
from zkplan.views.overview import Overview, TaskNow
from zkplan.views.root_look import PlanNow, QueueNow, WorkerNow
from zkplan.views.workers import LEFT, RUNNING, Held

NOW = 1_800_000_000.0
NASTY = ("plain", "名前" * 30, "\x1b[2J\nrow\tx", "x" * 300, "")


def plan(number: int, **more: Any) -> PlanNow:
    given = {"left": more.pop("left", None), "rate": more.pop("rate", None)}
    facts = {"tasks": 10**7, "runnable": 5, "dead": 0, "outcomes": 0, "added": 10**7, "created": 0}
    name = NASTY[number % len(NASTY)]
    status = PlanStatus(name, f"/z/plan-{number:010d}", "running", **facts | more)
    return PlanNow(status, f"{number:010d}", 3, 4, 0, 0, **given)


def overview(plans: int) -> Overview:
    names = [NASTY[at % len(NASTY)] for at in range(plans)]
    held = [Held(name, "0000000004", f"{at:010d}", 0, NOW - at) for at, name in enumerate(names)]
    workers = [WorkerRecord(name, name, 1, 4, NOW) for name in names]
    return Overview(
        NOW,
        [plan(at, rate=1234567.8, left=1e9) for at in range(plans)],
        [QueueNow(name, 10**9, 10**6, 10**6, 10**4) for name in names],
        [WorkerNow(each, 4, 10**5, NOW - 10**6) for each in workers],
        [TaskNow(each, name) for each, name in zip(held, [None, *names], strict=False)],
        10**6,
        [Late("dead", name, at - 3.0) for at, name in enumerate(names)],
        *(10**6, 7, 1e6),
    )


@pytest.mark.parametrize("plans", [0, 1, 3, 200])
@pytest.mark.parametrize("size", [(80, 24), (60, 12), (200, 60), (1, 1), (81, 25)])
def test_every_line_fits_and_nothing_moves_the_cursor(plans: int, size: tuple[int, int]) -> None:
    for notice in ("", "NO ANSWER " * 50):
        lines = picture(overview(plans), "/zkplan of " + "zk:2181," * 50, notice, *size)
        assert len(lines) <= max(size[1], HEIGHT_MIN)
        assert all(cell_len(line.text) <= max(size[0], WIDTH_MIN) for line in lines)
        assert all(line.text.isprintable() for line in lines)


def test_each_section_gets_room_and_says_how_much_it_leaves_out() -> None:
    heads = [
        line.text for line in picture(overview(200), "/z", "", 80, 24) if "reverse" in line.style
    ]
    told = ("LATE 4/200", "NAME 4/200", "NAME 3/1,000,000", "WORKER 3/200", "QUEUE 3/200")
    assert len(heads) == len(told)
    assert all(each in head for each, head in zip(told, heads, strict=True)), heads
    few = [line.text for line in picture(overview(1), "/z", "", 80, 24) if "reverse" in line.style]
    assert [head.split()[0] for head in few] == ["SINCE", "PLAN", "FOR", "WORKER", "QUEUE"]
    assert sum("/" in head.replace("RATE/S", "") for head in few) == 1


def test_a_wide_picture_says_how_much_of_a_plan_has_finished() -> None:
    seen = overview(0)._replace(plans=[plan(0, tasks=2500, added=10_000)])
    wide, narrow = ([line.text for line in picture(seen, "/z", "", w, 24)] for w in (100, 80))
    assert wide[2].split()[:5] == ["PLAN", "NAME", "STATE", "DONE", "LEFT"]
    assert wide[3].split()[2:6] == ["running", "75", "%", "2,500"]
    assert narrow[2].split()[:4] == ["PLAN", "NAME", "STATE", "LEFT"]
    assert narrow[3].split()[2:4] == ["running", "2,500"]


def test_a_time_still_to_come_is_never_rounded_down() -> None:
    left = {0.2: "1 s", 119.5: "120 s", 121.0: "3 min"}
    for seconds, told in left.items():
        seen = overview(0)._replace(
            plans=[plan(0, rate=1.0, left=seconds)], late=[Late("forecast", "late", -seconds)]
        )
        lines = [line.text for line in picture(seen, "/z", "", 100, 24)]
        assert lines[3].split("late")[0].strip() == f"in {told}"
        assert lines[5].rstrip().endswith(f" {told}")


def schedule(due: float, paused: bool = False) -> Schedule:
    definition = Definition(
        *("nightly", "uid", "@daily", "UTC", "skip", "latest", 10.0),
        *(PlanRecord("nightly", "", 0.0), b"", "5000", "f"),
    )
    return Schedule("/z/schedules/nightly", definition, Upcoming(int(due * 1000), paused), 0)


def test_each_late_item_is_shown_with_how_late_it_is() -> None:
    plans = [
        plan(0, deadline=NOW - 60),
        plan(5, deadline=NOW + 60, left=50.0),
        plan(10, deadline=NOW + 60, left=100.0),
        plan(15, dead=2),
    ]
    paused = plan(20, deadline=NOW - 60, dead=1)
    plans.append(paused._replace(status=paused.status._replace(state="paused")))
    queues = [QueueNow("a", 4, 0, 0, 0), QueueNow("b", 4, 0, 0, 1), QueueNow("c", 0, 0, 0, 0)]
    claims = [Held("gone", "0", "1", 0, NOW, state=LEFT), Held("w", "0", "2", 0, NOW)]
    delayed = {"0000000015": [NOW - 30, NOW - 90, NOW + 5, NOW - 1]}
    due = [schedule(NOW - 70), schedule(NOW - 70, paused=True), schedule(NOW - 12)]
    found = late_things(NOW, plans, queues, claims, delayed, due)
    assert claims[1].state == RUNNING
    assert [(late.code, late.by) for late in found] == [
        ("schedule", pytest.approx(60, abs=0.01)),
        ("deadline", 60.0),
        ("forecast", -100.0),
        ("delayed", 90.0),
        ("dead", None),
        ("unserved", None),
        ("left_behind", None),
    ]
    assert found[3].text.startswith("2 delayed tasks of plan 15")
    assert replace(due[0].definition).name in found[0].text
