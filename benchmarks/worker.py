"""A worker process that prints its statistics as a line of JSON, at SIGUSR1 and at its end."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys

import click

import zkplan
from zkplan.cli import spare_what_stays


@click.command()
@click.option("--hosts", required=True)
@click.option("--root", required=True)
@click.option("--threads", type=int, required=True)
@click.option("--profile", default="", help="Write a cProfile of the loop's thread to this file.")
def main(hosts: str, root: str, threads: int, profile: str) -> None:
    sys.path.insert(0, os.getcwd())
    with zkplan.connect(hosts, root) as client:
        worker = zkplan.Worker(client, threads)
        spare_what_stays()  # as the command `zkplan worker` does

        def tell(*_: object) -> None:
            line = json.dumps(dataclasses.asdict(worker.statistics()))
            # One write, and not through sys.stdout, whose writes the handler may interrupt.
            os.write(1, f"{line}\n".encode())

        signal.signal(signal.SIGUSR1, tell)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: worker.stop(5.0))
        if profile:
            import cProfile

            recorder = cProfile.Profile()
            recorder.runcall(worker.run)
            recorder.dump_stats(f"{profile}.{os.getpid()}")
        else:
            worker.run()
        tell()


if __name__ == "__main__":
    main()
