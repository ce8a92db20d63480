"""A worker without the key leaves sealed tasks to others, and uses none of their attempts."""

import os
import secrets

import zkplan

HOSTS = os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")

#: A key that the worker does not know. Others come from a file: `secret_files=`.
KEY = f"mine:{secrets.token_hex(32)}"

with zkplan.connect(HOSTS, secret=KEY) as client:
    with client.create_plan("signed") as plan:
        task = plan.add_task(lambda: 1, name="signed")
    try:
        task.result(timeout=3)
    except zkplan.WaitTimeout:
        (found,) = plan.tasks()
        print(found.name, "has used", found.attempts, "attempts")
    plan.remove()
