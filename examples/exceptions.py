"""An exception comes back as itself if it can be made again from its `args`."""

import os

import zkplan


class Travels(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)  # all that __init__ takes: it can be made again
        self.code = code


class Stays(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")


def fail(kind: type[Exception]) -> None:
    raise kind(404, "not found")


with zkplan.connect(os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")) as client:
    with client.create_plan("exceptions", attempts=1) as plan:
        tasks = [plan.add_task(fail, [kind]) for kind in (Travels, Stays)]
    try:
        tasks[0].result(timeout=60)
    except Travels as error:
        print(type(error).__name__, error.code)
    try:
        tasks[1].result(timeout=60)
    except zkplan.TaskFailed as failed:
        print(type(failed).__name__, "Stays: 404: not found" in failed.remote_traceback)
    plan.remove()
