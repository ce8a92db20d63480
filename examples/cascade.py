"""With on_failure="cascade" a failure travels down the edges, and the plan ends all the same."""

import os

import zkplan


def broken() -> int:
    raise ValueError("no data today")


with zkplan.connect(os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")) as client:
    with client.create_plan("cascade", attempts=1, on_failure="cascade") as plan:
        source = plan.add_task(broken, name="source")
        report = plan.add_task(str, [source], name="report")
        other = plan.add_task(lambda: "unharmed", name="other")
    try:
        plan.wait(timeout=60)
    except zkplan.PlanFailed as failed:
        print(plan.status().state, sorted(failed.failures))
    print(other.result())
