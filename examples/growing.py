"""A task adds tasks: they are part of its commit, so an attempt that fails leaves none."""

import os
from typing import Any

import zkplan


def explore(depth: int) -> int:
    me = zkplan.current()
    if depth:
        halves: list[Any] = [me.plan.add_task(explore, [depth - 1]) for _ in range(2)]
        me.plan.add_task(joined, [me.task, halves], name=f"joined-{depth}", keep=True)
    return depth


def joined(depth: int, halves: list[int]) -> str:
    return f"depth {depth} split into {halves}"


with zkplan.connect(os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")) as client:
    with client.create_plan("growing") as plan:
        plan.add_task(explore, [3])
    status = plan.wait(timeout=60)
    print(status.state, status.finished, "tasks")
