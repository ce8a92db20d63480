"""Many results at once: in the order asked, as they complete, and of many small calls."""

import os

import zkplan


@zkplan.task(attempts=5)
def square(number: int) -> int:
    return number * number


with zkplan.connect(os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")) as client:
    with client.create_plan("results") as plan:
        squares = [square(number) for number in range(5)]
        halves = plan.map(lambda number: number / 2, range(1000))
    print(plan.results(squares, timeout=60))
    print(sorted(task.result() for task in zkplan.as_completed(squares, timeout=60)))
    print(len(halves), "calls in", len(halves.tasks), "tasks:", halves[-1], sum(halves))
    plan.remove()
