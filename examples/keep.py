"""A result goes to the dependents; to read it as well, keep it."""

import os

import zkplan

with zkplan.connect(os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")) as client:
    with client.create_plan("keep") as plan:
        passed_on = plan.add_task(lambda: 20, name="passed on")
        kept = plan.add_task(lambda x: x + 1, [passed_on], keep=True)
        last = plan.add_task(lambda x: x * 2, [kept])
    print(kept.result(timeout=60), last.result(timeout=60))
    try:
        passed_on.result()
    except zkplan.ResultNotKept as error:
        print(type(error).__name__, error.task)
    number = kept.number  # a finished task is known by it, in this program and in others
    print(plan.task(number).result(), [outcome.kind for outcome in plan.outcomes()])
