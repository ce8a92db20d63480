"""`zkplan task show|retry`: one task, its state, its attempts and its outcome."""

from __future__ import annotations

from typing import Any

import click

from ..errors import InvalidTask
from ..inspection import describe_task
from .common import connection_options, open_client, output_option, print_facts

_plan = click.argument("plan", metavar="PLAN")
_task = click.argument("task", metavar="TASK")


@click.group()
def task() -> None:
    """Look at one task. PLAN as in `zkplan plan`; TASK is its number."""


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
