"""A root with a budget takes no new plan until a finished one is archived and removed."""

import os
import tempfile

import zkplan

HOSTS = os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")

with (
    tempfile.TemporaryDirectory() as folder,
    zkplan.connect(HOSTS, root="/bounded", store=f"file://{folder}") as client,
):
    client.set_retention(7 * 86400, archive=True)
    plan = client.create_plan("report")
    plan.add_task(sum, [[1, 2, 3]])
    plan.mark_ready()
    plan.cancel()
    print(client.set_budget(znodes=8).text)
    try:
        client.create_plan("next")
    except zkplan.BudgetSpent:
        print("no room")
    for removed in client.gc(keep=0, archive=True):
        print(removed.name, removed.outcome)
    (archived,) = client.archived_plans()
    back = client.import_plan(archived.file, archived=True)
    print(back.name, back.status().state)
    back.remove()
