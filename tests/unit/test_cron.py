"""Due times of cron expressions, across both changes of summer time."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from zoneinfo import ZoneInfo

import pytest

from zkplan.basics.cron import Cron
from zkplan.protocol.records import PlanRecord
from zkplan.protocol.schedules import CatchUp, Definition
from zkplan.schedules.due import Turn, jitter_s, turn

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold).timestamp()


def after(text: str, moment: float, count: int) -> list[str]:
    times = islice(Cron(text, "Europe/Berlin").after(moment), count)
    return [datetime.fromtimestamp(each, BERLIN).strftime("%d %H:%M%z") for each in times]


def test_a_time_that_summer_time_skips_is_due_after_the_gap() -> None:
    expected = ["28 02:30+0100", "29 03:00+0200", "30 02:30+0200"]
    assert after("30 2 * * *", at("2026-03-27T12:00"), 3) == expected
    assert after("0 30 2 * * *", at("2026-03-27T12:00"), 3) == expected


def test_a_time_that_comes_twice_is_due_once() -> None:
    expected = ["25 02:30+0200", "26 02:30+0100"]
    assert after("30 2 * * *", at("2026-10-24T12:00"), 2) == expected
    # Also where the schedule is looked at in the second of the two hours.
    assert after("30 2 * * *", at("2026-10-25T02:15", fold=1), 1) == ["26 02:30+0100"]
    assert Cron("30 2 * * *", "Europe/Berlin").latest(at("2026-10-25T02:45", fold=1)) == at(
        "2026-10-25T02:30"
    )


def test_with_a_star_the_real_time_counts() -> None:
    found = after("*/30 * * * *", at("2026-10-25T02:15"), 3)
    assert found == ["25 02:30+0200", "25 02:00+0100", "25 02:30+0100"]
    found = after("0 * * * *", at("2026-03-29T01:30"), 2)
    assert found == ["29 03:00+0200", "29 04:00+0200"]


@pytest.mark.parametrize(
    ("text", "zone", "told"),
    [
        ("* * * *", "UTC", "fields"),
        ("61 * * * *", "UTC", "minute"),
        ("0 0 30 2 *", "UTC", "day-of-month"),
        ("", "UTC", "fields"),
        ("@daily", "Mars/Base", "time zone"),
        ("@daily", "../etc/passwd", "time zone"),
    ],
)
def test_what_is_no_expression_is_refused(text: str, zone: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Cron(text, zone)


def schedule(catch_up: CatchUp, jitter: float = 0.0) -> Definition:
    record = PlanRecord("tick", "", 0.0)
    return Definition(
        *("tick", "u", "* * * * *", "UTC", "skip", catch_up, jitter), record, b"", "5000", "f"
    )


@pytest.mark.parametrize(
    ("catch_up", "late_s", "found"),
    [
        ("all", 0, Turn(0, 60_000, None)),
        ("all", 200, Turn(0, 60_000, None)),
        ("latest", 0, Turn(0, 60_000, None)),
        ("latest", 59.9, Turn(0, 60_000, None)),
        ("latest", 200, Turn(180_000, 240_000, 0)),
        ("none", 30, Turn(0, 60_000, None)),
        ("none", 200, Turn(180_000, 240_000, 0)),
    ],
)
def test_catch_up_says_which_missed_time_counts(
    catch_up: CatchUp, late_s: float, found: Turn
) -> None:
    cron = Cron("* * * * *", "UTC")
    assert turn(cron, schedule(catch_up), 0, int(late_s * 1000)) == found


def test_without_catching_up_a_time_of_long_ago_is_passed_over() -> None:
    found = turn(Cron("0 0 * * *", "UTC"), schedule("none"), 0, 3_600_000)
    assert found == Turn(None, 86_400_000, 0)


def test_jitter_is_the_same_for_all_and_differs_by_time() -> None:
    definition = schedule("all", 30.0)
    found = {jitter_s(definition, due_ms) for due_ms in range(0, 600_000, 60_000)}
    assert len(found) == 10
    assert all(0 <= each < 30 for each in found)
    assert jitter_s(schedule("all"), 60_000) == 0
