"""A result goes to the dependents; to read it as well, keep it."""

import os

import zkplan

with zkplan.connect(os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")) as client:
    with client.create_plan("keep") as plan:
        passed_on = plan.add_task(lambda: 20, name="passed on")
        kept = plan.add_task(lambda x: x + 1, [passed_on], name="kept", keep=True)
        last = plan.add_task(lambda x: x * 2, [kept], name="last")
    print(kept.result(timeout=60), last.result(timeout=60))
    try:
        passed_on.result()
    except zkplan.ResultNotKept as error:
        print(type(error).__name__, error.task)
    # In this program and in others; by its number (kept.number) it is found without a search.
    print(plan.task("kept").result(), [outcome.name for outcome in plan.outcomes()])
