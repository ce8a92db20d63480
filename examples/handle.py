"""A failure that is not retried is handled by a fallback and told by a notice."""

import os

import zkplan


def load(source: str) -> int:
    if source == "mirror":
        return 42
    raise PermissionError(f"{source} is closed")


def first_good(*values: object) -> object:
    return next(value for value in values if not isinstance(value, zkplan.Failure))


def notice(failure: zkplan.Failure) -> str:
    return f"told: {failure}, attempt {failure.attempt}"


with zkplan.connect(os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")) as client:
    with client.create_plan("handle", on_failure="cascade", fatal=PermissionError) as plan:
        main, mirror = plan.add_task(load, ["main"]), plan.add_task(load, ["mirror"])
        value = plan.add_task(first_good, [main, mirror], run_if="all_finished")
        told = plan.add_task(notice, [main], run_if="any_failed")
        quiet = plan.add_task(notice, [value], run_if="any_failed", keep=True)
    print(told.result(timeout=60))
    try:
        plan.wait(timeout=60)
    except zkplan.PlanFailed:
        print("skipped:", plan.status().skipped, quiet.result(), quiet.info().skipped)
    plan.remove()
