"""A task that fails is tried again; out of attempts it is dead, until somebody retries it."""

import os

import zkplan


def flaky() -> str:
    if zkplan.current().attempt == 0:
        raise ConnectionError("the first attempt fails")
    return "the second attempt succeeds"


def hopeless() -> None:
    raise ValueError("no attempt succeeds")


with zkplan.connect(os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")) as client:
    with client.create_plan("attempts", attempts=2, retry_delay=0.1, timeout=60) as plan:
        good = plan.add_task(flaky)
        bad = plan.add_task(hopeless, name="hopeless", attempts=1)
    print(good.result(timeout=60))
    try:
        bad.result(timeout=60)
    except ValueError as error:
        print("dead:", [task.name for task in plan.tasks() if task.state == "dead"], error)
    print("retried:", plan.retry())
    plan.remove()
