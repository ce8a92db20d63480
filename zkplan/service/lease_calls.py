"""Run the lease calls of requests: wait for tasks, and renew the leases of all programs
together."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence

from starlette.concurrency import run_in_threadpool

from ..client import Client
from .lease_board import REFRESH_S
from .leases import BATCH_MAX, Leased, Leases, Renewal
from .parameters import Link

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


# ---- The leases that a service gives, and who waits for tasks in it.


#: How often it is asked whether who waits is still there.
PRESENT_S = 2.0


class Work:
    """Has the leases of the client of a service, from the first that somebody asks for."""

    def __init__(self, link: Link) -> None:
        self._link, self._lock = link, threading.Lock()
        self._leases: Leases | None = None
        self._client: Client | None = None
        self._waiting: set[asyncio.Event] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_over = False
        self.renewing = Renewing(self._renew)

    def leases(self) -> Leases:
        """Those of the client that is used now. Raises what making a client raises."""
        with self._lock:
            client = self._link.renewed()
            if self._leases is None or self._client is not client:
                client.prepare()
                self._client, self._leases = client, Leases(client)
                self._leases.board.listeners.append(self._told)
            return self._leases

    async def claim(
        self,
        queues: Sequence[str],
        kinds: Sequence[str] | None,
        count: int,
        wait: float,
        lease: float,
        holder: str,
        is_gone: Callable[[], Awaitable[bool]],
    ) -> list[Leased]:
        """As `Leases.claim`, without a thread for each that waits. Nothing is claimed for who is
        gone by `is_gone`."""
        self._loop = asyncio.get_running_loop()
        leases, deadline = await run_in_threadpool(self.leases), time.monotonic() + wait
        changed = asyncio.Event()
        self._waiting.add(changed)
        try:
            while True:
                changed.clear()
                found = await run_in_threadpool(
                    leases.claim, queues, kinds, count, 0.0, lease, holder
                )
                left = deadline - time.monotonic()
                if found or left <= 0 or self._is_over:
                    return found
                most = REFRESH_S if leases.board.must_look_again else left
                if not await self._change(changed, min(left, most), is_gone):
                    return []
        finally:
            self._waiting.discard(changed)

    async def _renew(self, ids: Sequence[str]) -> list[Renewal]:
        return await run_in_threadpool(lambda: self.leases().renew(ids))

    async def _change(
        self, changed: asyncio.Event, seconds: float, is_gone: Callable[[], Awaitable[bool]]
    ) -> bool:
        """Wait for a change, or so long. Returns whether somebody still waits for tasks."""
        until = time.monotonic() + seconds
        while not self._is_over:
            left = until - time.monotonic()
            if await is_gone():
                return False
            if changed.is_set() or left <= 0:
                return True
            try:
                await asyncio.wait_for(changed.wait(), min(left, PRESENT_S))
            except asyncio.TimeoutError:
                continue
        return False

    def _told(self) -> None:
        """Called on a thread of kazoo."""
        loop = self._loop
        if loop is not None and self._waiting and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for each in self._waiting:
            each.set()

    def end(self) -> None:
        """Nobody waits any more: the service stops."""
        self._is_over = True
        self._wake()

    async def close(self) -> None:
        self.end()
        with self._lock:
            leases, self._leases = self._leases, None
        if leases is not None:
            await run_in_threadpool(leases.close)
