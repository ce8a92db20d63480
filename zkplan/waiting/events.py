"""The events of a plan as they come, for `for` and for `async for`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

from ..history.events import Event
from ..history.reading import Follower, follow
from ..store.values import Values
from .plan_async import in_thread


class EventStream(Iterator[Event]):
    """What `Plan.events` returns. Each `async for` begins with the first event; it uses one thread
    while it waits, and none of the event loop's."""

    def __init__(
        self, values: Values, plan_path: str, read: Callable[[], list[Event]] | None = None
    ) -> None:
        """`read` returns the events where it does not follow."""
        self._values, self._plan_path, self._read = values, plan_path, read
        self._events: Iterator[Event] | None = None

    def __next__(self) -> Event:
        if self._events is None:
            read = self._read
            self._events = iter(read()) if read else follow(self._values, self._plan_path)
        return next(self._events)

    async def __aiter__(self) -> AsyncIterator[Event]:
        read = self._read
        if read is not None:
            for event in await in_thread(lambda _: read()):
                yield event
            return
        follower = Follower(self._values, self._plan_path)
        try:
            while told := await in_thread(lambda _: follower.read_on()):
                for event in told:
                    yield event
        finally:
            follower.close()  # its thread ends, too, where the coroutine was cancelled
