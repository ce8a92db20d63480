"""Look into the histories of many plans, a few at a time, and say what they do not tell.

Who asks looks at the bytes first, and decodes and builds only what it wants.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence

from ..basics.text import count
from ..errors import PayloadUndecodable
from ..protocol.compaction import Cut
from ..protocol.histories import StoredHistory, read_histories
from ..protocol.history import GAP, Record
from ..store.parts import Earlier, earlier
from ..store.values import Values
from .events import EVENT_KINDS, Event, Events
from .reading import gaps

#: The letters of events that are of the whole plan.
OF_PLAN = f"SD{GAP}"
#: So many plans are read together. Each may have a mebibyte of history, several times as much when
#: it is unpacked.
PLANS_AT_A_TIME = 40
#: So many plans of which something is missing are named.
_NAMED = 3


class Across:
    """The histories of these plans. `since` is in seconds since 1970: histories that end before
    have no records here.

    `gaps` says in words what was not told by those that were read so far.
    """

    def __init__(self, values: Values, plan_paths: Sequence[str], since: float = 0.0) -> None:
        self._values, self._paths, self._since = values, plan_paths, since
        self._without: list[str] = []
        self._missing: dict[str, str] = {}

    def __iter__(self) -> Iterator[tuple[str, StoredHistory]]:
        """The path of each plan, and its history."""
        since_ms = int(self._since * 1000)
        for start in range(0, len(self._paths), PLANS_AT_A_TIME):
            paths = self._paths[start : start + PLANS_AT_A_TIME]
            histories = self._values.transport.run(read_histories(paths, since_ms))
            for path in paths:
                found = histories.pop(0)  # what was looked at is not held any longer
                if found is None:
                    self._without.append(path)
                    continue
                # What is gone was not asked for, if that is all older.
                is_older = 0 < found.cut.until < self._since
                more = earlier(self._values, path, Cut() if is_older else found.cut)
                if more.parts:
                    found = found.behind([(part.span, part.data) for part in more.parts], more.cut)
                yield path, found
                self._note(path, more, found)

    def damaged(self, path: str, error: Exception) -> None:
        """The records of that plan make no sense: that is told, and hides no other plan."""
        self._missing[path] = str(error)

    def _note(self, path: str, more: Earlier, found: StoredHistory) -> None:
        if told := gaps(more, found.untold, found.damaged):
            self._missing.setdefault(path, "; ".join(told))

    @property
    def gaps(self) -> list[str]:
        told = []
        if self._without:
            told.append(
                f"{count(len(self._without), 'plan')} with no history to read here: "
                f"{_first(self._without)}"
            )
        told += [
            f"the history of {path} is not whole: {self._missing[path]}"
            for path in list(self._missing)[:_NAMED]
        ]
        if len(self._missing) > _NAMED:
            told.append(f"nor are those of {count(len(self._missing) - _NAMED, 'other plan')}")
        return told


def _first(paths: Sequence[str]) -> str:
    return ", ".join(paths[:_NAMED]) + (", …" if len(paths) > _NAMED else "")


def of_tasks(records: Iterable[Record], numbers: Collection[int]) -> Iterator[Record]:
    """These records with the events of those tasks and of the plan alone: what they add up to is
    the same for each of the tasks as with all events."""
    for record in records:
        events = [
            event
            for event in record.events
            if event[0] in OF_PLAN or (len(event) > 1 and event[1] in numbers)
        ]
        if events:
            yield record._replace(events=events)


def events_across(
    across: Across, kinds: Collection[str], since: float
) -> Iterator[tuple[str, Event]]:
    """The path of the plan and the event, for each event of these kinds, or of all if there are
    none, that happened at `since` or later; plan by plan."""
    beginnings = {EVENT_KINDS[kind] for kind in kinds}
    written = [json.dumps(each, separators=(",", ":")).encode()[:-1] for each in beginnings]
    letters = {each[0] for each in beginnings}
    for path, stored in across:
        if written and not any(text in body for text in written for body in stored.bodies):
            continue
        try:
            records = stored.records()
            numbers = _numbers(records, letters, since * 1000)
            found = list(Events().of(of_tasks(records, numbers)))
        except (PayloadUndecodable, TypeError) as error:
            across.damaged(path, error)
            continue
        for event in found:
            if event.when >= since and (not kinds or event.kind in kinds):
                yield path, event


def _numbers(records: Iterable[Record], letters: Collection[str], since_ms: float) -> set[int]:
    """The tasks of the events with these letters; of all if there are none."""
    return {
        event[1]
        for record in records
        if record.ms >= since_ms
        for event in record.events
        if (not letters or event[0] in letters) and len(event) > 1 and event[0] != "S"
    }
