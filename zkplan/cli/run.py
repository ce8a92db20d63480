"""`zkplan run FILE`: create the plan that a file describes, start it, and wait for it."""

from __future__ import annotations

import click

from ..basics.text import count
from ..plan_files.builder import create, tasks_of
from ..plan_files.reader import read_plan_file
from ..settings import Settings
from .common import (
    connection_options,
    label_of,
    open_client,
    output_option,
    print_facts,
    wait_timeout_option,
)
from .imports import import_path_option, set_import_path
from .plan import status_row


@click.command()
@click.argument("file", metavar="FILE", type=click.Path())
@click.option("--name", help="Name of the plan, in place of the one in the file.")
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="Value of a parameter that [params] of the file has. Repeat the option for others.",
)
@click.option(
    "--wait/--no-wait",
    "waits",
    default=True,
    help="Wait until the plan is done. Otherwise print the number of the plan.",
)
@wait_timeout_option
@click.option("--check", is_flag=True, help="Only read and check the file; write nothing.")
@import_path_option
@output_option
@connection_options
def run(
    file: str,
    name: str | None,
    params: tuple[str, ...],
    waits: bool,
    timeout: float | None,
    check: bool,
    import_path: tuple[str, ...],
    output: str,
    settings: Settings,
) -> None:
    """Create the plan that FILE describes, and start it. FILE is TOML with a table for each task.

    The whole file is checked before anything is written; functions that it calls are imported, also
    from the current folder (with --serializer json only if --import-path names it). A plan that is
    waited for is not cancelled by Ctrl-C.
    """
    given = {}
    for param in params:
        key, separator, value = param.partition("=")
        if not separator:
            raise click.UsageError("--param is NAME=VALUE, and one has no `=`")
        given[key] = value
    set_import_path(settings, import_path)  # as a worker
    described = read_plan_file(file)
    tasks = tasks_of(described, given)
    if check:
        click.echo(f"{file}: {count(len(tasks), 'task')}, nothing is wrong with it", err=True)
        return
    with open_client(settings, creates=True) as client:
        plan = create(client, described, tasks, name)
        click.echo(f"started {label_of(plan)} with {count(len(tasks), 'task')}", err=True)
        if waits:
            print_facts(status_row(plan.wait(timeout, progress=True), output), output)
        elif output == "json":
            print_facts(status_row(plan.status(), output), output)
        else:
            click.echo(int(plan.number))
