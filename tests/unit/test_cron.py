"""Due times of cron expressions, across both changes of summer time."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as some

from zkplan.basics.cron import Cron
from zkplan.protocol.features.schedules import CatchUp, Definition, Turn, jitter_s, turn
from zkplan.protocol.records import PlanRecord

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold).timestamp()


def after(text: str, moment: float, count: int) -> list[str]:
    times = islice(Cron(text, "Europe/Berlin").after(moment), count)
    return [datetime.fromtimestamp(each, BERLIN).strftime("%d %H:%M%z") for each in times]


def test_a_time_skipped_by_summer_time_is_due_after_the_gap() -> None:
    expected = ["28 02:30+0100", "29 03:00+0200", "30 02:30+0200"]
    assert after("30 2 * * *", at("2026-03-27T12:00"), 3) == expected
    assert after("0 30 2 * * *", at("2026-03-27T12:00"), 3) == expected


def test_a_time_that_occurs_twice_is_due_once() -> None:
    expected = ["25 02:30+0200", "26 02:30+0100"]
    assert after("30 2 * * *", at("2026-10-24T12:00"), 2) == expected
    # Also where the schedule is looked at in the second of the two hours.
    assert after("30 2 * * *", at("2026-10-25T02:15", fold=1), 1) == ["26 02:30+0100"]
    # It is the latest in all of the second hour, also before the clock shows it again.
    cron, due = Cron("30 2 * * *", "Europe/Berlin"), at("2026-10-25T02:30")
    assert {cron.latest(at(f"2026-10-25T02:{m}", fold=1)) for m in (10, 30, 45)} == {due}


def test_times_near_a_shift_of_half_an_hour_are_all_due() -> None:
    there = ZoneInfo("Australia/Lord_Howe")
    for day, first in (("2026-10-04", "03:00"), ("2026-04-05", "02:00")):
        cron = Cron(f"*/10 {first[1]} * * *", there.key)
        midnight = datetime.fromisoformat(day).replace(tzinfo=there).timestamp()
        found = datetime.fromtimestamp(next(cron.after(midnight)), there)
        assert f"{found:%F %R}" == f"{day} {first}"


#: Days on which clocks are set, by an hour, half an hour, two hours, at midnight, over a whole day.
CLOCKS_ARE_SET = [
    *(("Europe/Berlin", "2026-03-29"), ("Europe/Berlin", "2026-10-25")),
    *(("Australia/Lord_Howe", "2026-10-04"), ("Australia/Lord_Howe", "2026-04-05")),
    *(("Antarctica/Troll", "2026-03-29"), ("Antarctica/Troll", "2026-10-25")),
    *(("America/Havana", "2026-03-08"), ("America/Havana", "2026-11-01")),
    *(("Asia/Beirut", "2026-03-29"), ("Asia/Beirut", "2026-10-25")),
    *(("Pacific/Apia", "2011-12-30"), ("UTC", "2026-03-29")),
]
MINUTES = {"*": range(60), "*/20": (0, 20, 40), "0": (0,), "30": (30,), "5,35": (5, 35)}
HOURS = {"*": range(24), "*/2": range(0, 24, 2), "1-3": (1, 2, 3), "0,23": (0, 23), "2": (2,)}


@cache
def clock(zone: str, day: str, second: int) -> list[tuple[float, datetime]]:
    """What a clock shows in each minute of four days around that one."""
    there = ZoneInfo(zone)
    begin = datetime.fromisoformat(day).replace(tzinfo=there).timestamp() - 48 * 3600 + second
    moments = [begin + 60 * number for number in range(96 * 60)]
    return [(each, datetime.fromtimestamp(each, there).replace(tzinfo=None)) for each in moments]


@given(
    where=some.sampled_from(CLOCKS_ARE_SET),
    second=some.sampled_from(["", "0", "15"]),
    minute=some.sampled_from([*MINUTES]),
    hour=some.sampled_from([*HOURS]),
    hours=some.floats(46, 54),
)
def test_due_times_are_the_times_a_clock_shows_even_across_clock_changes(
    where: tuple[str, str], second: str, minute: str, hour: str, hours: float
) -> None:
    def is_meant(wall: datetime) -> bool:
        return wall.minute in MINUTES[minute] and wall.hour in HOURS[hour]

    shown = clock(*where, int(second or 0))
    due = set()
    if "*" in minute + hour or second == "15":
        due = {moment for moment, wall in shown if is_meant(wall)}
    else:
        coming = shown[0][1]
        for moment, wall in shown:
            while coming <= wall:  # Clocks have come to it, or past it.
                due |= {moment} if is_meant(coming) else set()
                coming += timedelta(minutes=1)
    cron = Cron(f"{second} {minute} {hour} * * *".strip(), where[0])
    begin = shown[0][0]
    start, end, now = (begin + each * 3600 for each in (24, 72, hours))
    expected = sorted(each for each in due if start < each <= end)
    assert list(takewhile(lambda each: each <= end, cron.after(start))) == expected
    assert cron.latest(now) == max(each for each in due if each <= now)
    assert next(cron.after(now)) == min(each for each in due if each > now)


def test_an_alias_means_what_it_means_for_cron() -> None:
    moment = at("2026-03-27T12:00")
    assert after("@midnight", moment, 2) == after("@daily", moment, 2)
    assert after("@annually", moment, 2) == after("@yearly", moment, 2)


def test_an_expression_with_a_star_follows_elapsed_time_across_clock_changes() -> None:
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
        ("0 0 */29 2 MON#5", "UTC", "never due"),
        ("@daily", "Mars/Base", "time zone"),
        ("@daily", "../etc/passwd", "time zone"),
        ("@daily", "localtime", "every machine"),
        ("@daily", None, "every machine"),
        (None, "UTC", "cron expression"),
    ],
)
def test_an_invalid_expression_is_refused(text: str, zone: str, told: str) -> None:
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
def test_catch_up_decides_which_missed_time_is_fired(
    catch_up: CatchUp, late_s: float, found: Turn
) -> None:
    cron = Cron("* * * * *", "UTC")
    assert turn(cron, schedule(catch_up), 0, int(late_s * 1000)) == found


def test_without_catching_up_a_long_missed_time_is_skipped() -> None:
    found = turn(Cron("0 0 * * *", "UTC"), schedule("none"), 0, 3_600_000)
    assert found == Turn(None, 86_400_000, 0)


def test_jitter_is_the_same_for_all_workers_and_differs_by_due_time() -> None:
    definition = schedule("all", 30.0)
    found = {jitter_s(definition, due_ms) for due_ms in range(0, 600_000, 60_000)}
    assert len(found) == 10
    assert all(0 <= each < 30 for each in found)
    assert jitter_s(schedule("all"), 60_000) == 0
