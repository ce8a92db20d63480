"""`zkplan task ls|show|retry`: the unfinished tasks; one task, its attempts and its outcome."""

from __future__ import annotations

from typing import Any

import click

from ..errors import InvalidTask
from ..inspection import describe_task
from ..listing import TaskSummary
from .common import connection_options, open_client, output_option, print_facts, print_rows

_plan = click.argument("plan", metavar="PLAN")
_task = click.argument("task", metavar="TASK")


@click.group()
def task() -> None:
    """Look at tasks. PLAN as in `zkplan plan`; TASK is a number, or a name of an unfinished or
    dead task."""


@task.command("ls")
@_plan
@click.option(
    "--limit", type=click.IntRange(1), default=1000, show_default=True, help="At most so many."
)
@output_option
@connection_options
def list_tasks(plan: str, limit: int, output: str, **connection: Any) -> None:
    """The unfinished tasks of a plan, oldest first: where each one is."""
    with open_client(**connection) as client:
        rows = [found._asdict() for found in client.plan(plan).tasks(limit)]
    print_rows(rows, output, TaskSummary._fields)


@task.command()
@_plan
@_task
@output_option
@connection_options
def show(plan: str, task: str, output: str, **connection: Any) -> None:
    """State, options, edges, log and outcome of a task, with the traceback of its last failure."""
    with open_client(**connection) as client:
        print_facts(describe_task(client.plan(plan).task(task), people=output == "table"), output)


@task.command()
@_plan
@_task
@connection_options
def retry(plan: str, task: str, **connection: Any) -> None:
    """Give a dead task all its attempts again."""
    with open_client(**connection) as client:
        found = client.plan(plan).task(task)
        if not found.retry():
            raise InvalidTask(task, f"{found.path} is not dead, so there is nothing to retry")
        click.echo(f"{found.path} is runnable again", err=True)
