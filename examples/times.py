"""A task begins not before its time; a plan that has not ended at its deadline is cancelled."""

import os
import time
from datetime import datetime, timedelta, timezone

import zkplan

with zkplan.connect(os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")) as client:
    soon = datetime.now(timezone.utc) + timedelta(seconds=0.5)
    with client.create_plan("times", deadline=timedelta(hours=1)) as plan:
        late = plan.add_task(time.time, not_before=soon)
    print("in time:", late.result(timeout=60) >= soon.timestamp())
    with client.create_plan("endless", deadline=1.0) as plan:
        plan.add_task(time.sleep, [3])
    try:
        plan.wait(timeout=60)
    except zkplan.PlanCancelled as cancelled:
        print(str(cancelled).partition(" was ")[2])
