"""Maintain the store: move the oldest parts of histories there, and delete what ended plans leave.

Each part names the one before it with its digest, and the tree names the last one. So a reader
reads only parts that were in the tree once, and nothing else in the store.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from ..basics.log import get_logger
from ..basics.text import count
from ..errors import (
    PayloadUndecodable,
    PlanNotFound,
    StoredValueLost,
    StoreUnavailable,
    ZkplanError,
)
from ..protocol import failpoints, formats
from ..protocol.core.plan_life import failed_tasks
from ..protocol.features import remove_plan
from ..protocol.fields import Unproven, from_json, to_json
from ..protocol.history.compaction import Cut, Oldest, let_go, oldest
from ..protocol.history.segments import STORED_PART, Record, Span, gap_to_bytes, records_from_bytes
from ..protocol.requests import ReadChildren, ReadData, Step
from ..transport import Transport
from .blobs import HISTORY, Bytes, Reference, digest, key_of
from .plan_values import HOW_TO_GIVE, Values

#: The maximum of bytes of a history that are read from the store, the latest parts first.
READ_BYTES_MAX = 16 * 1024 * 1024
NO_STORE = f"and none is configured here: give the one of its workers {HOW_TO_GIVE}"


class Part(NamedTuple):
    """A part of a history: the data of a merged znode, the number of its events, and the cut that
    the znode of the history had before."""

    span: Span
    data: bytes
    events: int
    before: Cut

    def records(self) -> list[Record]:
        """Raises PayloadUndecodable."""
        return records_from_bytes(self.span, self.data, 0)


class Earlier(NamedTuple):
    """The parts of a history in the store, in order. `cut` is what is still missing, and `why` says
    where it is, if that is known."""

    parts: list[Part]
    cut: Cut
    why: str = ""


def part_of(found: Oldest) -> tuple[Reference, bytes]:
    """The part for a znode that leaves the tree. Every client makes equal bytes."""
    head = to_json({"events": found.events, "before": found.cut._asdict()})
    blob = b"%b%08x%b%b" % (formats.HISTORY_PART, len(head), head, found.data)
    first, last, _, _ = found.span
    key = f"{HISTORY}-{first:010d}-{last:010d}-{len(blob)}"
    return Reference(key, digest([blob]), len(blob)), blob


def parse_part(name: str) -> Reference:
    """Raises PayloadUndecodable if `name` is not the name of a part."""
    found = STORED_PART.fullmatch(name)
    if found is None:
        raise PayloadUndecodable(f"{name!r:.100} is not a part of a history")
    return Reference(found[1], bytes.fromhex(found[5]), int(found[4]))


def part_from_bytes(name: str, blob: Bytes) -> Part:
    """Raises OtherFormat, and PayloadUndecodable for bytes that `part_of` did not make."""
    found, data = STORED_PART.fullmatch(name), bytes(blob)
    formats.require_magic(data, formats.HISTORY_PART)
    try:
        end = 12 + int(data[4:12], 16)
        value = from_json(data[12:end], "the head of a part")
        before = Cut.from_bytes(to_json(value["before"]))
        if (
            not data.startswith(formats.HISTORY_PART)
            or found is None
            or type(value["events"]) is not int
        ):
            raise ValueError("no part")
    except (ValueError, TypeError, LookupError) as error:
        raise PayloadUndecodable(f"it is not a part of a history: {error}") from None
    span = Span(int(found[2]), int(found[3]), name.replace(HISTORY, "merged", 1))
    return Part(span, data[end:], value["events"], before)


def chain(cut: Cut, read: Callable[[Reference], Bytes], after: int = -1) -> Earlier:
    """The parts with a number above `after`, read from the last one back to the first. A gap
    replaces parts that were dropped.

    If `read` raises StoredValueLost, StoreUnavailable or PayloadUndecodable, `why` says so.
    """
    parts, left, now, size = list[Part](), cut, cut, 0
    why = ""
    while now.stored and not why and _last(now.stored) > after:
        try:
            reference = parse_part(now.stored)
            if (size := size + reference.length) > READ_BYTES_MAX:
                why = f"no more than {READ_BYTES_MAX // 1024**2} MiB of a history are read"
                break
            part = part_from_bytes(now.stored, read(reference))
        except (StoredValueLost, StoreUnavailable) as error:
            why = str(error)
        except PayloadUndecodable as error:
            why = f"{now.stored} cannot be read: {error}"
        else:
            if now.lost > part.before.lost:
                data = gap_to_bytes(part.span.last, int(now.until * 1000))
                parts.append(Part(part.span, data, 0, now))
            parts.append(part)
            left = left._replace(events=left.events - part.events, kept=left.kept - part.events)
            now = part.before
    return Earlier(parts[::-1], left._replace(stored=now.stored), why)


def _last(name: str) -> int:
    found = STORED_PART.fullmatch(name)
    return int(found[3]) if found else -1


def earlier(values: Values, plan_path: str, cut: Cut, after: int = -1) -> Earlier:
    """The parts in the store with numbers above `after`; `cut` is that of the history's znode."""
    if _last(cut.stored) <= after:
        return Earlier([], cut)
    if values.store is None:
        events = count(cut.kept, "event")
        return Earlier([], cut, f"{events} of these lie in a store, {NO_STORE}")
    try:
        found = chain(cut, lambda reference: values.blob(plan_path, reference), after)
    except PlanNotFound as error:
        return Earlier([], cut, str(error))
    where = f"{count(found.cut.kept, 'event')} of these lie in the store {values.store.url}: "
    return found._replace(why=where + found.why) if found.why else found


def keep_oldest(transport: Transport, values: Values, plan_path: str) -> int:
    """Move the oldest znodes of a history into the store, until the tree has less than its bound.
    Returns how many. Raises StoreUnavailable.

    Each part is durable before its znode is deleted. If the process dies in between, the tree does
    not name the part: nobody reads it, and the next mover writes it again.
    """
    store, folder, moved = values.store, values.known_folder_of(plan_path), 0
    while store is not None and folder:
        found = transport.run(oldest(plan_path))
        if found is None:
            break
        reference, blob = part_of(found)
        store.write(folder, reference.name, [blob])
        failpoints.reach("history.between")
        if not transport.run(let_go(plan_path, found, reference.name)):
            if transport.ask(ReadData(plan_path)) is None:
                store.delete_folder(folder)  # the plan was removed, and this made the folder again
            break  # another mover does it
        moved += 1
    return moved


# ---- Delete the blobs that a plan does not need once it is done, and the rest when it is removed.
# A thread does this, and moves histories.


#: How long the end of a client waits for its sweeps.
CLOSE_S = 5.0
#: How long the thread waits for another plan before it ends.
IDLE_S = 1.0
logger = get_logger("zkplan.store")


def remove(
    transport: Transport, values: Values, plan_path: str, end: int | None = None
) -> int | None:
    """Remove a plan, and then its folder in the store. Returns how many unfinished tasks it had;
    None if `end` (see `remove_plan.remove`) keeps it.

    If the store is not available, this logs a warning, and the plan is removed nevertheless.
    """
    folder = values.known_folder_of(plan_path)
    try:
        removed: int | None = transport.run(remove_plan.remove(plan_path, end))
    except PlanNotFound:
        # If the folder is known, an earlier removal by this client got no answer.
        _delete_folder(values, plan_path, folder)
        raise
    if removed is not None:
        _delete_folder(values, plan_path, folder)
    return removed


def _delete_folder(values: Values, plan_path: str, folder: str) -> None:
    if values.store is None or not folder:
        return
    try:
        values.store.delete_folder(folder)
    except ZkplanError as error:
        logger.warning(
            "%s is removed, but not its folder %s, which may be deleted by hand: %s",
            *(plan_path, folder, error),
        )


def leftovers(plan_path: str, names: Sequence[str]) -> Step[list[str]]:
    """The blobs that nothing refers to any more, if the plan is done; else none.

    The kept results are listed after `done` was seen. So the list is complete, because no task of a
    done plan can add one. If tasks have failed, all blobs stay until the plan is removed, because a
    retry may need them.
    """
    done = yield ReadData(f"{plan_path}/done")
    if done is None or isinstance(done.data, Unproven) or failed_tasks(done.data):
        return []
    kept = yield ReadChildren(f"{plan_path}/results")
    return [] if kept is None else swept(names, set(kept))


def swept(names: Sequence[str], kept: Collection[str]) -> list[str]:
    """The blobs of a done plan to delete: all but the results of the tasks `kept`, and its history.

    >>> swept(["0000000005.1-aa", "0000000006.1-bb", "add-cc", "history-dd"], {"0000000005"})
    ['0000000006.1-bb', 'add-cc']
    """
    stays = {HISTORY, *kept}
    return [name for name in names if key_of(name).partition(".")[0] not in stays]


class Sweeper:
    """Deletes the blobs that done plans have left in the store, and moves histories that are too
    long there, on a thread of its own, one plan at a time.

    Errors are only logged: `zkplan plan check` finds blobs that are left, `zkplan plan rm` deletes
    them. `again` gets the plan whose history could not be moved.
    """

    def __init__(
        self, transport: Transport, values: Values, again: Callable[[str], None] = lambda _: None
    ) -> None:
        self._transport, self._values, self._again = transport, values, again
        self._changed = threading.Condition()
        self._due: deque[tuple[Callable[[str], None], str]] = deque()
        self._is_running = self._is_closed = False
        #: The plans whose histories wait for the store.
        self._waiting = set[str]()

    @property
    def has_store(self) -> bool:
        return self._values.store is not None

    def plan_is_done(self, plan_path: str) -> None:
        """Sweep that plan soon. Thread-safe; never waits for the store."""
        self._put(self._sweep, plan_path)

    def history_is_merged(self, plan_path: str) -> None:
        """Move the oldest parts of that history soon, if it is too long. See `plan_is_done`."""
        self._put(self._keep, plan_path)

    def _put(self, job: Callable[[str], None], plan_path: str) -> None:
        if self._values.store is None:
            return
        with self._changed:
            if self._is_closed or (job, plan_path) in self._due:
                return
            self._due.append((job, plan_path))
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="zkplan-sweep", daemon=True).start()
            self._changed.notify_all()

    def close(self) -> None:
        """Wait for the sweeps that are due, at most a few seconds."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._is_running, CLOSE_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._due or self._is_closed, IDLE_S)
                if not self._due:
                    self._is_running = False
                    self._changed.notify_all()
                    return
                job, plan_path = self._due.popleft()
            job(plan_path)

    def _sweep(self, plan_path: str) -> None:
        try:
            store, folder = self._values.store, self._values.known_folder_of(plan_path)
            names = store.names(folder) if store is not None and folder else []
            if store is not None and names:
                store.delete(folder, self._transport.run(leftovers(plan_path, names)))
        except Exception as error:
            logger.warning(
                "%s is done, but what it left in the store is not deleted: %s", plan_path, error
            )

    def _keep(self, plan_path: str) -> None:
        try:
            keep_oldest(self._transport, self._values, plan_path)
            self._waiting.discard(plan_path)
        except Exception as error:
            if plan_path not in self._waiting:
                self._waiting.add(plan_path)
                logger.warning(
                    "the oldest history of %s stays in the tree, and goes to the store later: %s",
                    *(plan_path, error),
                )
            self._again(plan_path)
