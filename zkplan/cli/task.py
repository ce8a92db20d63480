"""`zkplan task ls|show|logs|why|…`: unfinished tasks, kept outcomes; all facts of one task."""

from __future__ import annotations

import click

from ..basics.text import count
from ..errors import PayloadUndecodable
from ..inspection.task_details import describe_task
from ..settings import Settings
from .common import (
    connection_options,
    open_client,
    output_option,
    print_facts,
    print_why,
)
from .imports import set_import_path
from .replay import replay
from .task_control import cancel, retry, set_, skip
from .task_logs import logs
from .task_ls import list_tasks

_plan = click.argument("plan", metavar="PLAN")
_task = click.argument("task", metavar="TASK")


@click.group()
def task() -> None:
    """Look at tasks and control them. PLAN is as in `zkplan plan`. TASK is a number, or the name of
    a task that is unfinished or whose outcome is kept."""


@task.command()
@_plan
@_task
@click.option(
    "--values",
    is_flag=True,
    help="Decode the result and the progress notes, and print them as Python writes them. Decoding "
    "runs code of whoever wrote them, on this machine and with your rights.",
)
@output_option
@connection_options
def show(plan: str, task: str, values: bool, output: str, settings: Settings) -> None:
    """Show one task: state, options, edges, log, outcome, and the traceback of its last failure."""
    if values:
        set_import_path(settings, ())  # as a worker: the classes of values are where it was found
    with open_client(settings) as client:
        found = client.plan(plan).task(task)
        facts = describe_task(client, found.path, people=output == "table", values=values)
        undecoded = facts.pop("undecoded", [])
        print_facts(facts, output)
    if undecoded:
        raise PayloadUndecodable(
            f"{found.path}: {count(len(undecoded), 'value')} cannot be decoded here; a module or "
            f"the secret (secret-files) may be missing: {undecoded[0]}"
        )


@task.command()
@_plan
@_task
@output_option
@connection_options
def why(plan: str, task: str, output: str, settings: Settings) -> None:
    """Say why a task does not run now, down to the tasks that keep it waiting in the end."""
    with open_client(settings) as client:
        print_why(client.plan(plan).task(task).why(), output)


for _command in (list_tasks, logs, skip, cancel, retry, set_, replay):
    task.add_command(_command)
