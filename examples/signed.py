"""A worker without the secret leaves signed tasks to others, and uses none of their attempts."""

import os

import zkplan

HOSTS = os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")

with zkplan.connect(HOSTS, secret="a secret that the worker does not know") as client:
    with client.create_plan("signed") as plan:
        task = plan.add_task(lambda: 1, name="signed")
    try:
        task.result(timeout=3)
    except zkplan.WaitTimeout:
        (found,) = plan.tasks()
        print(found.name, "has used", found.attempts, "attempts")
    plan.remove()
