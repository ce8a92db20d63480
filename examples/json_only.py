"""Nothing is unpickled: functions go by name, and the worker runs only what its list names."""

import os
import statistics

import zkplan

HOSTS = os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")
ROOT = "/zkplan-json"

with (
    zkplan.connect(HOSTS, ROOT, serializer="json") as for_worker,
    zkplan.connect(HOSTS, ROOT, serializer="json") as client,
    zkplan.Worker(for_worker, allow=["statistics:mean*", "statistics:median"]),
):
    with client.create_plan(attempts=1) as plan:
        middle = plan.add_task(statistics.median, [[1, 2, 9]])
        average = plan.add_task(statistics.mean, [[4, middle, 6]])
        refused = plan.add_task(statistics.mode, [[1, 1]])
        try:
            plan.add_task(lambda: 1)
        except zkplan.NotSerialisable:
            print("a lambda has no name")
    print(average.result(timeout=60))
    print(str(refused.exception(timeout=60)).split(": ")[1])
    plan.remove()
