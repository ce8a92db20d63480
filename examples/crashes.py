"""A task that crashes costs one attempt of its own; the task beside it notices nothing."""

import ctypes
import os

import zkplan


def crash():
    ctypes.string_at(0)


def use_much():
    return len(bytearray(b"x") * 10**9)


with zkplan.connect(os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")) as client:
    with client.create_plan("crashes", attempts=1, isolation="process") as plan:
        crashes = plan.add_task(crash)
        hungry = plan.add_task(use_much, memory_limit="200MB")
        neighbour = plan.add_task(os.getpid)
        in_worker = plan.add_task(os.getpid, isolation="thread")
    for task in (crashes, hungry):
        told = str(task.exception(60)).partition("attempts: ")[2]
        print(told.partition(", its limit")[0].strip())
    print(neighbour.result(60) != in_worker.result(60))
