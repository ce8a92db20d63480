"""Ray runs the graphs on a local instance, with as many processors as zkplan has threads."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

import ray

from .serving import serve


def start(folder: str) -> None:
    ray.init(
        address="local",
        num_cpus=int(sys.argv[1]) * int(sys.argv[2]),
        include_dashboard=False,
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
        _temp_dir=folder,
    )


def run(calls: Any, leaves: list[int]) -> list[Any]:
    remote = {function: ray.remote(function) for function, _ in calls}
    made: list[Any] = []
    for function, needed in calls:
        made.append(remote[function].remote(*[made[index] for index in needed]))
    return list(ray.get([made[index] for index in leaves]))


if __name__ == "__main__":
    os.environ.update({"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"})
    # The folder must have a short path, because the paths of Ray's sockets in it may have at most
    # 107 bytes.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        serve(lambda: start(folder), {"remote": run})
        ray.shutdown()
