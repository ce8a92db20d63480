"""A schedule makes one plan for each due time; the plan's first task adds the others."""

import os

import zkplan


def shard(number: int) -> int:
    return number


def build(shards: int) -> str:
    plan = zkplan.current().plan
    for number in range(shards):
        plan.add_task(shard, [number])
    return f"{shards} shards for {plan.due:%H:%M}"


with zkplan.connect(os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")) as client:
    nightly = client.schedule("nightly", "30 2 * * *", build, [3], timezone="Europe/Berlin")
    (due,) = nightly.next()
    print("next:", f"{due:%H:%M}", due.tzinfo)
    plan = nightly.trigger()  # now, whether it is due or not
    print(plan.wait(timeout=60).finished, "tasks,", nightly.info().fired[-1].how)
    nightly.remove()
