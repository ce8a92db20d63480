"""A value of any size: it lies in the store, and ZooKeeper holds a reference to it."""

import zkplan


def make(size: int) -> bytes:
    return bytes(size)


def join(parts: list[bytes]) -> bytes:
    return b"".join(parts)


if __name__ == "__main__":
    with zkplan.local(workers=2, threads=2) as client:
        with client.create_plan("large") as plan:
            parts = [plan.add_task(make, [5_000_000]) for _ in range(4)]
            whole = plan.add_task(join, [parts])
        print(len(whole.result(timeout=60)))
