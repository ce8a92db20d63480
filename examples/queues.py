"""Tasks that only some workers can run: those that serve the queue of the task."""

import os

import zkplan

hosts = os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")


def train(rate: float) -> str:
    return f"a model, by rate {rate}"


def report(models: list[str]) -> str:
    return f"best of {len(models)}: {models[0]}"


with zkplan.connect(hosts) as client, zkplan.connect(hosts) as of_worker:
    with client.create_plan("training") as plan:
        models = [plan.add_task(train, [rate], queue="gpu") for rate in (0.1, 0.2)]
        best = plan.add_task(report, [models])
    for queue in client.queues():
        if queue.name == "gpu":
            print(queue.name, queue.runnable, "runnable, served by", len(queue.workers), "workers")
    print(plan.why().causes[0].text)
    # As `zkplan worker --queue gpu` on another machine; the report runs on any other worker.
    with zkplan.Worker(of_worker, threads=1, queues=["gpu"]):
        print(best.result(timeout=60))
    plan.remove()
