"""Renewals of leases: those of all programs go to ZooKeeper together, a few times a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from ..leases import Renewal
from ..leases.giver import BATCH_MAX

#: Renewals are sent so many seconds after the ones before, at the earliest: what comes meanwhile
#: goes with the next. So they cost ten requests a second, however many programs renew.
APART_S = 0.2

Send = Callable[[Sequence[str]], Awaitable[list[Renewal]]]


class Renewing:
    """Gathers renewals. Used by one event loop."""

    def __init__(self, send: Send) -> None:
        """`send` renews these claims, at most BATCH_MAX, in one go."""
        self._send = send
        self._waiting: list[tuple[Sequence[str], asyncio.Future[list[Renewal]]]] = []
        self._task: asyncio.Task[None] | None = None
        self._sent_at = float("-inf")

    async def renew(self, ids: Sequence[str]) -> list[Renewal]:
        """As `Leases.renew`, at most BATCH_MAX claims."""
        answer: asyncio.Future[list[Renewal]] = asyncio.get_running_loop().create_future()
        self._waiting.append((ids, answer))
        if self._task is None:
            self._task = asyncio.create_task(self._send_all())
        return await answer

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(max(0.0, self._sent_at + APART_S - time.monotonic()))
                self._sent_at = time.monotonic()
                await self._send_some()
        finally:
            self._task = None

    async def _send_some(self) -> None:
        # An ID that two of them name is renewed once.
        ids: dict[str, None] = {}
        count = 0
        for wanted, _ in self._waiting:
            more = ids | dict.fromkeys(wanted)
            if ids and len(more) > BATCH_MAX:
                break
            ids, count = more, count + 1
        some, self._waiting = self._waiting[:count], self._waiting[count:]
        try:
            found = {each.id: each for each in await self._send(list(ids))}
        except Exception as error:
            for _, answer in some:
                if not answer.done():
                    answer.set_exception(error)
            return
        for wanted, answer in some:
            if not answer.done():  # whoever asked is gone otherwise
                answer.set_result([found[text] for text in wanted])
