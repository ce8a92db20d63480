"""Tasks that share something of which there is not enough: a limit says how many run at a time."""

import os
import time

import zkplan


def query(number: int) -> tuple[float, float]:
    started = time.time()
    time.sleep(0.1)
    return started, time.time()


def most_at_once(times: list[tuple[float, float]]) -> int:
    return max(sum(a <= start < b for a, b in times) for start, _ in times)


with zkplan.connect(os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")) as client:
    client.set_limit("db", 2)
    client.set_limit("api", 100, per="hour")
    with client.create_plan("limited", limits=["api", "db"]) as plan:
        asked = [plan.add_task(query, [number]) for number in range(6)]
        most = plan.add_task(most_at_once, [asked], limits=[])
    print("at most", most.result(timeout=60), "at the same time")
    print([(limit.name, limit.size, len(limit.held)) for limit in client.limits()])
    try:
        client.create_plan("mistyped").add_task(query, [1], limits=["bd"])
    except zkplan.InvalidTask as error:
        print(str(error).partition(";")[0])
    client.remove_limit("db")
    client.remove_limit("api")
    plan.remove()
