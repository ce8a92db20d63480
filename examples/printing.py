"""What a task prints is kept, attempt by attempt, also when the task is finished."""

import os

import zkplan


def load(rows: int) -> int:
    attempt = zkplan.current().attempt
    print(f"loading {rows} rows")
    if attempt == 0:
        raise ConnectionError("the database is busy")
    return rows


with zkplan.connect(os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")) as client:
    with client.create_plan("printing", retry_delay=0.1, keep=True) as plan:
        loading = plan.add_task(load, [3])
    print(loading.result(timeout=60))
    for found in loading.logs():
        print(f"attempt {found.attempt}: {found.text!r}")
    plan.remove()
