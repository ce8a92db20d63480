"""A delay that was measured by a wrong wall clock does not keep a task for hours."""

from __future__ import annotations

import time

import zkplan

from .support import WAIT_S, plain_client, wait_until, working

ROOT = "/wrong-clock"
HOUR_S = 3600


def test_an_entry_of_a_worker_whose_clock_is_ahead_runs_after_its_delay(
    zookeeper_hosts: str,
) -> None:
    """The entry that such a worker leaves is made here by hand: an hour ahead, delay 1.5 s."""
    with (
        zkplan.connect(zookeeper_hosts, ROOT) as client,
        plain_client(zookeeper_hosts) as kazoo,
        client.create_plan("delayed") as plan,
    ):
        task = plan.add_task(abs, [-7])
        plan.mark_ready()
        (entry,) = kazoo.get_children(f"{plan.path}/runnable")
        due_ms = int((time.time() + HOUR_S) * 1000)
        later = f"{ROOT}/delayed/{due_ms:013d}-{plan.path[-10:]}-{entry}"
        change = kazoo.transaction()
        change.delete(f"{plan.path}/runnable/{entry}")
        change.create(later, b"1500")
        assert change.commit() == [True, later]
        # The worker may see it before it is registered, but not before it was started.
        began = time.monotonic()
        with working(zookeeper_hosts, ROOT):
            wait_until(lambda: kazoo.exists(later) is None, "the entry is runnable", WAIT_S)
            assert time.monotonic() - began > 1.5
            assert task.result(WAIT_S) == 7
