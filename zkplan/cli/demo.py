"""`zkplan demo`: see a plan run on real input, and survive the death of a worker."""

from __future__ import annotations

import logging

import click

from ..demo.run import Settings, run
from .common import log_to_stderr
from .running import zookeeper_for


@click.command()
@click.option(
    "--hosts",
    envvar="ZKPLAN_HOSTS",
    show_envvar=True,
    help="ZooKeeper to use. Without this option the command starts an embedded server on loopback.",
)
@click.option(
    "--workers", type=click.IntRange(1, 64), default=3, help="Number of worker processes."
)
@click.option(
    "--threads",
    type=click.IntRange(1, 64),
    default=2,
    help="Tasks that each process runs at a time.",
)
@click.option("--kill/--no-kill", default=True, help="Kill one of the workers while it runs tasks.")
@click.option(
    "--timeout", type=click.FloatRange(1), default=120.0, help="Seconds that the plan may take."
)
def demo(hosts: str | None, workers: int, threads: int, kill: bool, timeout: float) -> None:
    """See a plan run, and survive the death of a worker.

    The plan analyses the source of Python's standard library. One of its workers is killed while it
    runs tasks; the others take over these tasks. The result is compared with that of a single
    process. The demonstration removes everything that it created. Exit codes: 0 identical, 1
    failed, 3 no ZooKeeper, 4 timed out.
    """
    log_to_stderr(logging.WARNING)
    settings = Settings(workers, threads, kill and workers > 1, timeout)
    with zookeeper_for("demo", hosts) as provided:
        run(provided, settings)
