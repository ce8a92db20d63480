"""An attempt that fails leaves checkpoints, and the next attempt goes on from the last one."""

import os

import zkplan


def count(end: int) -> str:
    task = zkplan.current()
    start = task.logs[-1] if task.logs else 0
    for number in range(start, end):
        task.log(number + 1)
        if number == 2:
            raise RuntimeError("interrupted")
    return f"from {start} to {end}"


with zkplan.connect(os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")) as client:
    with client.create_plan("checkpoints", retry_delay=0.1) as plan:
        counted = plan.add_task(count, [5])
    print(counted.result(timeout=60))
