"""DBOS runs workflows from a queue, on the threads of this program."""

from __future__ import annotations

import itertools
import sys
import time
from typing import Any

from dbos import DBOS, DBOSClient, DBOSConfig
from sqlalchemy import create_engine

from .serving import answer_lines

APPLICATION, QUEUE, WORKFLOW, VERSION = "bench", "claims", "double", "1"
#: How often a program looks for workflows. The default of 1 s would leave it idle.
POLLING_INTERVAL_S = 0.01
#: Batches that a program may run at once. With only one, it would wait for the next look.
BATCHES = 4
_OPEN = ["ENQUEUED", "PENDING"]
_runs = itertools.count()


def double(number: int) -> int:
    next(_runs)
    return 2 * number


DBOS.workflow(name=WORKFLOW)(double)


class Program:
    """One program. The one with `number` 0 adds the workflows."""

    def __init__(self, folder: str, user: str, number: int) -> None:
        self._url = f"postgresql+psycopg://{user}@/postgres?host={folder}"
        self._number = number

    def start(self) -> None:
        config = DBOSConfig(
            name=APPLICATION,
            system_database_url=self._url,
            application_version=VERSION,
            executor_id=f"program-{self._number}",
            log_level="WARNING",
        )
        DBOS(config=config)
        DBOS.launch()
        self._queue = DBOS.register_queue(
            QUEUE, worker_concurrency=0, polling_interval_sec=POLLING_INTERVAL_S
        )
        self._engine = create_engine(self._url)
        self._client = DBOSClient(system_database_engine=self._engine)

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """`add` a number of workflows, or `work` in batches of a size until all have ended."""
        if "add" in asked:
            self._add(asked["add"])
            return {}
        before = next(_runs)
        self._queue.set_worker_concurrency(BATCHES * asked["work"])
        while DBOS.list_workflows(status=_OPEN, limit=1, load_input=False, load_output=False):
            time.sleep(0.05)
        return {"done": next(_runs) - before - 1}

    def _add(self, count: int) -> None:
        """Add workflows in one transaction, to a queue that no program takes from yet."""
        self._queue.set_worker_concurrency(0)
        options: Any = {
            "queue_name": QUEUE,
            "workflow_name": WORKFLOW,
            "app_version": VERSION,
            "application_name": APPLICATION,
        }
        with self._engine.begin() as transaction:
            for number in range(count):
                self._client.enqueue_in_transaction(transaction, options, number)


if __name__ == "__main__":
    program = Program(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    answer_lines(program.start, {}, program.answer)
    DBOS.destroy()
