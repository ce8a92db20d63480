"""Claim jobs from PGQueuer's store, by its own queries on one connection per program."""

from __future__ import annotations

import asyncio
import sys
import uuid
from datetime import timedelta
from typing import Any

import asyncpg
from pgqueuer.db import AsyncpgDriver
from pgqueuer.ports.repository import EntrypointExecutionParameter
from pgqueuer.queries import Queries

from .serving import answer_lines

ENTRYPOINT = "bench"
#: PGQueuer's default. A program with an older heartbeat has lost its jobs.
HEARTBEAT_TIMEOUT = timedelta(seconds=30)
_ADDED_AT_ONCE = 1000


class Program:
    """One program. The one with `number` 0 makes the tables."""

    def __init__(self, folder: str, user: str, number: int) -> None:
        self._place: dict[str, Any] = {"host": folder, "user": user, "database": "postgres"}
        self._number = number
        self._loop = asyncio.new_event_loop()

    def start(self) -> None:
        self._loop.run_until_complete(self._start())

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """`add` a number of jobs, or `work` in batches of a size until none are queued."""
        if "add" in asked:
            self._loop.run_until_complete(self._add(asked["add"]))
            return {}
        return {"done": self._loop.run_until_complete(self._work(asked["work"]))}

    async def _start(self) -> None:
        connection = await asyncpg.connect(**self._place)
        self._queries = Queries(AsyncpgDriver(connection))
        if self._number == 0:
            await self._queries.install()

    async def _add(self, count: int) -> None:
        for first in range(0, count, _ADDED_AT_ONCE):
            payloads: list[bytes | None] = [
                b"%d" % n for n in range(first, min(first + _ADDED_AT_ONCE, count))
            ]
            size = len(payloads)
            await self._queries.enqueue([ENTRYPOINT] * size, payloads, [0] * size)

    async def _work(self, batch: int) -> int:
        done = 0
        wanted = {ENTRYPOINT: EntrypointExecutionParameter(concurrency_limit=0)}
        me = uuid.uuid4()
        while jobs := await self._queries.dequeue(batch, wanted, me, None, HEARTBEAT_TIMEOUT):
            # PGQueuer keeps no results, so they are computed and dropped.
            done += len([2 * int(job.payload) for job in jobs])
            await self._queries.log_jobs([(job, "successful", None) for job in jobs])
        return done


if __name__ == "__main__":
    program = Program(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    answer_lines(program.start, {}, program.answer)
