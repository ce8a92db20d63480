"""What a task writes elsewhere carries its fencing number, and the store refuses a smaller one."""

import os
import sqlite3
import tempfile

import zkplan


def store(database: str, key: str, value: int) -> int:
    fence = zkplan.current().attempt
    with sqlite3.connect(database) as rows:
        changed = rows.execute(
            "INSERT INTO facts VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET"
            " value = excluded.value, fence = excluded.fence WHERE excluded.fence >= fence",
            (key, value, fence),
        ).rowcount
    rows.close()
    return changed


with tempfile.TemporaryDirectory() as folder:
    database = os.path.join(folder, "facts.db")
    with sqlite3.connect(database) as rows:
        rows.execute("CREATE TABLE facts (key TEXT PRIMARY KEY, value INTEGER, fence INTEGER)")
    with zkplan.connect(os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")) as client:
        with client.create_plan("fencing") as plan:
            stored = plan.add_task(store, [database, "answer", 42])
        print("rows changed:", stored.result(timeout=60))
    rows.close()
