"""`zkplan demo`: see a plan run on real input, and survive the death of a worker."""

from __future__ import annotations

import logging

import click

from ..demo.run import Settings, run
from ..settings import Settings as Connecting
from .common import log_to_stderr, optional_connection_options
from .running import zookeeper_for


@click.command()
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
@click.option(
    "--page/--no-page",
    default=False,
    help="Print the address of a page that shows it. At a terminal the plan starts once you press "
    "Enter, and the page ends once you press it again. It needs zkplan[service].",
)
@optional_connection_options
def demo(
    workers: int, threads: int, kill: bool, timeout: float, page: bool, settings: Connecting
) -> None:
    """See a plan run, and survive the death of a worker.

    Without --hosts and --profile the command starts an embedded server on loopback.

    The plan analyses the source of Python's standard library. One of its workers is killed while it
    runs tasks; the others take over these tasks. The result is compared with that of a single
    process. The demonstration removes everything that it created. Exit codes: 0 identical, 1
    failed, 3 no ZooKeeper, 4 timed out.
    """
    log_to_stderr(logging.WARNING)
    wanted = Settings(workers, threads, kill and workers > 1, timeout, page)
    with zookeeper_for("demo", settings) as (provided, connection):
        run(provided, connection, wanted)
