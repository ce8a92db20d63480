"""The time line of many tasks has rows by name and by worker that show what runs and fails."""

from __future__ import annotations

from zkplan.views.history_state import FAILED, PlanState, TaskState
from zkplan.views.timeline import Line, timeline
from zkplan.views.timeline_spans import critical_path, lines

START = 1_700_000_000_000


def task(number: int, name: str, started: int, ran: int, worker: str = "w-1") -> TaskState:
    """A task that was runnable from the beginning on, and ran from `started` for `ran` ms."""
    made = TaskState(number, name, worker=worker, claims=1, is_known=True)
    made.added_ms = made.runnable_ms = START
    made.claimed_ms = made.started_ms = START + started
    made.ran_ms, made.ended_ms, made.gone = ran, START + started + ran, True
    return made


def pages() -> PlanState:
    """100 pages: the even ones by one worker, one after the other; then the odd ones by another
    one. Of what follows one is dead, one is delayed, one runs, and 30 wait."""
    state = PlanState()
    made = [task(at, f"page {at}", at * 500, 1000) for at in range(0, 100, 2)]
    made += [task(at, f"page {at}", 49_500 + at * 500, 1000, "w-2") for at in range(1, 100, 2)]
    dead = task(100, "merge 1", 1000, 3000)
    dead.place, dead.gone, dead.error = "x", False, "ValueError"
    late = task(101, "late", 1000, 1000)
    late.place, late.gone, late.ended_ms = "d5", False, 0
    now = task(102, "now", 0, 0)
    now.place, now.gone, now.ran_ms, now.started_ms = "c", False, -1, 0
    now.claimed_ms = START + 90_000
    made += [dead, late, now, *(TaskState(at, "waits", is_known=True) for at in range(103, 133))]
    state.tasks = {each.number: each for each in made}
    state.ms = START + 100_000
    return state


def row(drawn: list[Line], name: str) -> tuple[str, str, bool]:
    """The bar of a row, what stands behind it, and whether it says that something has failed."""
    found = next(line for line in drawn if line.text[1:].startswith(name))
    return found.text[26:80], " ".join(found.text[80:].split()), found.fails


def test_many_tasks_are_drawn_grouped_by_name_and_by_worker() -> None:
    drawn = list(timeline(pages(), 120))
    assert drawn[1].text.startswith("100 of 133 tasks ended, 1 dead, 1 delayed, 1 running, 30 wait")
    assert row(drawn, "page #") == ("█" * 54, "100 100.0 s", False)
    assert row(drawn, "waits") == (" " * 54, "0 of 30 0.00 s", False)
    bar, told, fails = row(drawn, "merge 1")
    assert (bar.rstrip(), told, fails) == ("▄█▂", "0 of 1 3.00 s 1 dead", True)
    # A delayed task is not drawn as running, and a claimed task is drawn up to now.
    assert set(row(drawn, "late")[0][2:]) == {" "}
    assert row(drawn, "now")[0] == "·" * 48 + "▄" + "█" * 5
    # One scale for all workers: the first one was busy, then the second.
    first, second = row(drawn, "w-1"), row(drawn, "w-2")
    assert (first[0][3:27], first[0][27:]) == ("▄" * 24, " " * 21 + "▂" + "▄" * 5)
    assert (second[0][:27], second[0][27:]) == (" " * 27, "▄" * 27)
    assert (first[1], second[1]) == ("50 54.0 s 1 running", "50 50.0 s")
    assert max(len(line.text) for line in timeline(pages(), 80)) <= 80


def test_groups_with_failures_are_drawn_first_and_nothing_is_left_out() -> None:
    state = pages()
    state.tasks = {at: task(at, f"{chr(0x100 + at)}", at, 5) for at in range(100)}
    state.tasks[77].flags = FAILED
    drawn = list(timeline(state, 120))
    assert row(drawn, chr(0x100 + 77))[1:] == ("1 0.01 s 1 failed", True)
    assert row(drawn, "(75 other names)")[1].startswith("75 ")
    told = lines(state)
    assert (len(told.rows), told.others) == (25, 75)
    assert {tuple(each.running[:2]) for each in told.rows} == {(1, 0)}


def test_a_cycle_of_edges_in_a_damaged_history_still_gives_a_critical_path() -> None:
    one, two = task(1, "one", 0, 5), task(2, "two", 5, 5)
    one.deps, two.deps = (2,), (1,)
    assert [each.number for each in critical_path({1: one, 2: two})] == [1, 2]
