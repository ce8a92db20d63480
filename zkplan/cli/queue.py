"""`zkplan queue ls`: the queues under a root, what waits in each, and who serves it."""

from __future__ import annotations

import click

from ..inspection.queues import QueueStatus
from ..settings import Settings
from .common import connection_options, open_client, output_option, print_rows


@click.group()
def queue() -> None:
    """Look at queues. Tasks and plans name them, and `zkplan worker --queue NAME` serves them."""


@queue.command("ls")
@output_option
@connection_options
def list_queues(output: str, settings: Settings) -> None:
    """List the queues: waiting, runnable and running tasks of active plans, and the workers.

    `oldest` is how many seconds the oldest runnable task of the queue has stood there.
    """
    with open_client(settings) as client:
        rows = []
        for found in client.queues():
            row = found._asdict()
            if output != "json":
                row["workers"] = len(found.workers)
                row["oldest"] = "" if found.oldest is None else f"{found.oldest:.1f} s"
            rows.append(row)
        print_rows(rows, output, QueueStatus._fields)
