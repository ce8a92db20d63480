"""The page turns a history into the time line of a plan and the events of a task (in node)."""

from __future__ import annotations

import unicodedata
from typing import Any

from zkplan.basics.text import printable
from zkplan.protocol.history.events import RawEvent
from zkplan.protocol.history.segments import Record
from zkplan.service.histories import _row
from zkplan.views.history_state import PlanState
from zkplan.views.timeline_spans import lines

from .in_node import MODULES, in_node

TIMELINE = f"""
import {{ endOf, pieces }} from "{(MODULES / "timeline.js").as_uri()}";
import {{ readFileSync }} from "node:fs";
const told = JSON.parse(readFileSync(0, "utf8"));
const last = endOf(told, 100);
console.log(JSON.stringify([last, told.rows.map((row) => pieces(row, last))]));
"""
EVENTS = f"""
import {{ NO_EVENTS, withPage }} from "{(MODULES / "events.js").as_uri()}";
import {{ readFileSync }} from "node:fs";
const pages = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(pages.reduce(withPage, NO_EVENTS)));
"""
PRINTABLE = f"""
import {{ printable }} from "{(MODULES / "printable.js").as_uri()}";
import {{ readFileSync }} from "node:fs";
console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(printable)));
"""
HANDED_BACK: list[list[RawEvent]] = [
    [["a", 0, "task", "r5.0.0", [], "", 0]],
    [["c", 0, 0, "w"]],
    [["h", 0, "r5.0.0", "w"]],
]


def drawn(*seconds: list[RawEvent]) -> Any:
    """Where the picture ends, 100 s being now, and the pieces of a task with these events, second
    by second."""
    state = PlanState()
    state.apply(Record(at, 1000 * (at + 1), "w", told) for at, told in enumerate(seconds))
    found = lines(state)
    rows = [_row(row).model_dump() for row in found.rows]
    last, (pieces,) = in_node(TIMELINE, {"last": found.last_ms / 1000, "rows": rows})
    return last, pieces


def test_only_running_tasks_extend_to_the_present_in_the_time_line() -> None:
    assert drawn(*HANDED_BACK, [["S", "cancelled"]]) == (4, [["runnable", 3, 4]])
    runs = [["runnable", 3, 4], ["running", 4, 100]]
    assert drawn(*HANDED_BACK, [["c", 0, 1, "w"]]) == (100, runs)
    failed: list[RawEvent] = [["f", 0, "d9000-5.1.1", "ValueError", 500, 0]]
    assert drawn(*HANDED_BACK[:2], failed, []) == (4, [["dead", 2.5, 3]])
    ended: list[RawEvent] = [["k", 0, 0, 5, 500, 250]]
    was = [["runnable", 1, 2], ["claimed-ahead", 2, 2.25], ["running", 2.25, 2.75]]
    assert drawn(*HANDED_BACK[:2], ended, []) == (4, was)


def test_the_time_line_includes_earlier_attempts() -> None:
    failed: list[RawEvent] = [["f", 0, "r5.0.0", "ValueError", 500, 0]]
    again: list[RawEvent] = [["c", 0, 1, "w"]]
    ended: list[RawEvent] = [["k", 0, 0, 5, 500, 0]]
    seconds = *HANDED_BACK[:2], failed, again, failed, again, ended
    first, second = ["dead", 2.5, 3], ["dead", 4.5, 5]
    assert drawn(*seconds[:4])[1][:1] == [first]
    assert drawn(*seconds[:5])[1][:2] == [first, second]
    was = [["runnable", 5, 6], ["claimed-ahead", 6, 6.5], ["running", 6.5, 7]]
    assert drawn(*seconds) == (7, [first, second, *was])


def event(position: int, kind: str, attempt: int | None = None) -> dict[str, Any]:
    return {"position": position, "kind": kind, "attempt": attempt}


def test_the_last_events_of_a_task_are_shown_and_its_output_hides_none() -> None:
    printed = [event(at, "printed", 0) for at in range(1000, 1900)]
    events = [*(event(at, "moved") for at in range(300)), event(300, "claimed", 0), *printed]
    events += [event(1900, "attempt failed", 0), event(1901, "printed", 1)]
    starts = range(0, len(events), 500)
    pages = [{"items": events[at : at + 500], "next": f"from {at + 500}"} for at in starts]
    found = in_node(EVENTS, [*pages[:-1], pages[-1] | {"next": None}])
    latest = [(each["position"], each["kind"]) for each in found["events"]]
    assert latest[:3] == [(1901, "printed"), (1900, "attempt failed"), (1899, "printed")]
    assert latest[3:] == [(300, "claimed"), *((at, "moved") for at in range(299, 103, -1))]
    assert (len(latest), found["isCut"], found["cursor"]) == (200, True, "from 1000")
    few = in_node(EVENTS, [{"items": events[:2], "next": None}])
    assert (few["isCut"], few["cursor"], len(few["events"])) == (False, None, 2)


def test_output_of_a_task_is_shown_as_the_commands_print_it() -> None:
    texts = ["\x1b[2Jgone\r\u202e", "a\tb\n", *map(chr, (*range(0x3100), 0xE000, 0xFEFF, 0xE0001))]
    # Which characters there are depends on the Unicode of Python and of the browser.
    known = [text for text in texts if unicodedata.category(text[-1]) != "Cn"]
    assert in_node(PRINTABLE, known) == [printable(text) for text in known]
