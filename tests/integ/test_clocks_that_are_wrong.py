"""A delay that was measured by a wrong wall clock does not keep a task for hours."""

from __future__ import annotations

import time

from kazoo.client import KazooClient

from tests.tools.support import WAIT_S, Here, wait_until, working
from zkplan import Client

HOUR_S = 3600


def test_an_entry_of_a_worker_whose_clock_is_ahead_runs_after_its_delay(
    here: Here, zkplan_client: Client, znodes: KazooClient
) -> None:
    """The entry that such a worker leaves is made here by hand: an hour ahead, delay 1.5 s."""
    with zkplan_client.create_plan("delayed") as plan:
        task = plan.add_task(abs, [-7])
    (entry,) = znodes.get_children(f"{plan.path}/runnable")
    due_ms = int((time.time() + HOUR_S) * 1000)
    later = f"{zkplan_client.root}/delayed/{due_ms:013d}-{plan.number}-{entry}"
    znodes.delete(f"{plan.path}/runnable/{entry}")
    znodes.create(later, b"1500")
    # The worker may see it before it is registered, but not before it was started.
    began = time.monotonic()
    with working(*here):
        wait_until(lambda: znodes.exists(later) is None, "the entry is runnable")
        assert time.monotonic() - began > 1.5
        assert task.result(WAIT_S) == 7
