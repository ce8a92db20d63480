"""`zkplan task ls|show|retry`: unfinished tasks, kept outcomes; one task with all of its facts."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from ..errors import InvalidTask, PayloadUndecodable
from ..inspect.outcomes import OutcomeSummary
from ..inspect.task_details import describe_task
from ..inspect.unfinished import TaskSummary
from ..text import count, date_time
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
@click.option(
    "--outcomes", is_flag=True, help="The kept results and failures instead, of finished tasks too."
)
@output_option
@connection_options
def list_tasks(plan: str, limit: int, outcomes: bool, output: str, **connection: Any) -> None:
    """The unfinished tasks of a plan, oldest first: where each one is."""
    rows: list[dict[str, Any]]
    with open_client(**connection) as client:
        found = client.plan(plan)
        if outcomes:
            rows = [kept._asdict() for kept in found.outcomes(limit)]
        else:
            rows = [task._asdict() for task in found.tasks(limit)]
            if output == "table":
                for row in rows:
                    row["name"] = "(cannot be read here)" if row["name"] is None else row["name"]
    for row in rows:
        name = "when" if outcomes else "due"
        if row[name] is not None:
            row[name] = date_time(row[name], output != "json")
    print_rows(rows, output, OutcomeSummary._fields if outcomes else TaskSummary._fields)


@task.command()
@_plan
@_task
@click.option(
    "--values",
    is_flag=True,
    help="Decode the result and the progress notes, and print them as Python writes them. Decoding "
    "runs code of whoever wrote them, here and with your rights.",
)
@output_option
@connection_options
def show(plan: str, task: str, values: bool, output: str, **connection: Any) -> None:
    """State, options, edges, log and outcome of a task, with the traceback of its last failure."""
    if values:
        sys.path.insert(0, os.getcwd())  # as a worker: the classes of values are where it was found
    with open_client(**connection) as client:
        found = client.plan(plan).task(task)
        facts = describe_task(client, found.path, people=output == "table", values=values)
        undecoded = facts.pop("undecoded", [])
        print_facts(facts, output)
    if undecoded:
        raise PayloadUndecodable(
            f"{found.path}: {count(len(undecoded), 'value')} cannot be shown here, where a module "
            f"or the secret (ZKPLAN_SECRET) may be missing: {undecoded[0]}"
        )


@task.command()
@_plan
@_task
@connection_options
def retry(plan: str, task: str, **connection: Any) -> None:
    """Give a dead task all its attempts again."""
    with open_client(**connection) as client:
        its_plan = client.plan(plan)
        found = its_plan.task(task)
        if not found.retry():
            final = (
                '; a failure in a plan with on_failure="cascade" is final, for it is a result'
                if its_plan.record.on_failure == "cascade"
                else ""
            )
            why = f"{found.path} is not dead, so there is nothing to retry{final}"
            raise InvalidTask(task, why)
        click.echo(f"{found.path} is runnable again", err=True)
