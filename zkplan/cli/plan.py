"""`zkplan plan ls|show|why|wait|pause|resume|…`: look at plans, and control and move them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import starmap
from pathlib import Path
from typing import Any

import click

from ..author.archives import Archived
from ..basics.settings import Settings
from ..basics.text import count, printable
from ..errors import AccessDenied
from ..plan import Plan
from ..protocol.core.plan_life import PlanStatus
from ..protocol.core.plans_and_queues import refuse_hidden
from ..protocol.fields import lasting_to_json
from ..protocol.layout import PRIORITY_MAX, PRIORITY_MIN
from ..protocol.records import WEIGHT_MAX, Dead
from ..transport.addresses import folder_of, is_embedded
from ..values.guard import reported
from ..views.attention import UNATTENDED
from ..views.find import path_given
from . import EXIT_FAILED, EXIT_USAGE
from .common import (
    confirm,
    connection_options,
    label_of,
    open_client,
    plan_argument,
    print_facts,
    print_rows,
    print_why,
    report_empty,
    result_options,
    wait_timeout_option,
    with_dates,
    yes_option,
)
from .plan_graph import graph
from .plan_history import history, timeline
from .retention import gc

_COLUMNS = (
    *("number", "name", "state", "unfinished", "runnable", "dead"),
    *("finished", "added", "weight", "priority", "created", "key"),
)


@click.group()
def plan() -> None:
    """Look at plans and control them. PLAN is a path, a number, key:KEY, or a name. If several
    plans have that name, it means the newest."""


for _command in (gc, graph, history, timeline):
    plan.add_command(_command)


# ---- Look at plans.


def status_row(found: PlanStatus, output: str) -> dict[str, Any]:
    # People would take `tasks` for all tasks of the plan, finished ones included.
    row = {"unfinished" if name == "tasks" else name: v for name, v in found._asdict().items()}
    row |= {"number": found.path.rpartition("-")[2], "finished": found.finished}
    row = with_dates(row, output, "created", "not_before", "deadline", "ended")
    for name in ("key", "reason", "unread", "not_before", "deadline", "ended"):
        if not row[name]:
            del row[name]
    return row


@plan.command("ls")
@result_options
def list_plans(output: str, settings: Settings) -> None:
    """List all plans under the root. On stderr, name the plans that need attention."""
    with open_client(settings) as client:
        found = [each.status() for each in client.plans()]
        print_rows([status_row(each, output) for each in found], output, _COLUMNS)
        for status in found:
            if status.unread:
                click.echo(printable(status.unread), err=True)
        with suppress(AccessDenied):
            for late in client.observer().look(0).late:
                if late.code in UNATTENDED:
                    click.echo(f"needs attention: {late.text}", err=True)
        # Raise for hidden plans last, after the readable ones are listed.
        client.transport.run(refuse_hidden(client.paths))
        if not found:
            report_empty("plan", client, settings.hosts)


@plan.command()
@plan_argument
@result_options
def show(plan: str, output: str, settings: Settings) -> None:
    """Show one plan in numbers, and its dead tasks."""
    with open_client(settings) as client:
        found = client.plan(plan)
        facts = status_row(found.status(), output)
        facts["on_failure"] = found.record.on_failure
        if found.record.retention is not None:
            facts["retention"] = lasting_to_json(found.record.retention)
        if output == "table":
            facts["failures"] = "\n".join(starmap(_failure, found.dead()))
        else:
            facts["failures"] = {
                f"task-{number}": {"name": letter.name, "error": letter.error}
                for number, letter in found.dead()
            }
        print_facts(facts, output)


def _failure(number: str, letter: Dead) -> str:
    name = f"task-{number}"
    return f"{name if letter.name == name else f'{letter.name} ({name})'}: {letter.error}"


@plan.command()
@plan_argument
@result_options
def why(plan: str, output: str, settings: Settings) -> None:
    """Explain why a plan has not ended, cause by cause, and what to do."""
    with open_client(settings) as client:
        print_why(client.plan(plan).why(), output)


@plan.command()
@plan_argument
@wait_timeout_option
@click.option("--fail-fast", is_flag=True, help="Stop waiting as soon as a task fails for good.")
@result_options
def wait(
    plan: str, timeout: float | None, fail_fast: bool, output: str, settings: Settings
) -> None:
    """Wait until a plan is done. A terminal shows a progress bar."""
    with open_client(settings) as client:
        status = client.plan(plan).wait(timeout, progress=True, fail_fast=fail_fast)
        print_facts(status_row(status, output), output)


@plan.command()
@plan_argument
@click.option("--repair/--no-repair", default=True, help="Repair what zkplan may repair.")
@result_options
def check(plan: str, output: str, repair: bool, settings: Settings) -> None:
    """Check a whole plan against the invariants. The exit code is 1 if there are problems."""
    # The report also names a refused record of the plan, which is read before the check.
    with open_client(settings) as client, reported(path_given(client.paths, plan)):
        report = client.plan(plan).check(repair)
    lists = ("created", "published", "mended", "unreferenced", "deleted")
    names = ("tasks", *lists, "unread", "unchecked", "problems")
    facts = {name: getattr(report, name) for name in names}
    if output == "table":
        found = {name: "\n".join(facts.pop(name)) for name in (*lists, "problems")}
        facts |= {name: text for name, text in found.items() if text} or {"found": "nothing"}
        for name in ("unread", "unchecked"):
            if not facts[name]:
                del facts[name]
    print_facts(facts, output)
    if report.problems:
        # A repair that an access list forbids is one of the problems.
        raise SystemExit(EXIT_USAGE if report.shut else EXIT_FAILED)


# ---- Move plans.


@plan.command("export")
@plan_argument
@click.option(
    "--out", required=True, type=click.Path(), help="The file to write. It must not exist yet."
)
@click.option("--pause", is_flag=True, help="Pause the plan first, if it is running.")
@click.option(
    "--wait",
    type=click.FloatRange(0),
    default=0.0,
    help="Seconds to wait for running tasks to end. The exit code is 4 if some still run then.",
)
@click.option("--remove", is_flag=True, help="Remove the plan once the file is written.")
@result_options
def export(
    plan: str, out: str, pause: bool, wait: float, remove: bool, output: str, settings: Settings
) -> None:
    """Write a plan to a file, to move it to another server. This fails while tasks of the plan are
    claimed: see --pause and --wait."""
    with open_client(settings) as client:
        found = client.plan(plan)
        label, rm = label_of(found), client.command(f"plan rm {int(found.number)}")
        facts = client.export_plan(found, out, pause=pause, wait=wait, remove=remove)
    print_facts(facts._asdict() | {"file": str(facts.file)}, output)
    if remove:
        click.echo(f"{label} removed", err=True)
    elif facts.state == "paused":
        click.echo(
            f"{label} stays paused here. Import it elsewhere, then remove it here, so that nothing "
            f"runs twice:\n{rm}",
            err=True,
        )


@plan.command("import")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option(
    "--resume",
    is_flag=True,
    help="Let the plan run at once. By default it stays paused if it was paused.",
)
@click.option("--copy", is_flag=True, help="Import the plan even if it is under this root already.")
@click.option(
    "--archived",
    is_flag=True,
    help="FILE names an archive in the store, as `plan archived` lists it.",
)
@click.option(
    "--any-secret", is_flag=True, help="Also import data that no key of this client has sealed."
)
@result_options
def import_(
    file: str, resume: bool, archived: bool, output: str, settings: Settings, **options: bool
) -> None:
    """Create a plan from an exported file, or from an archive. It gets a number of its own under
    this root."""
    if not archived and not Path(file).exists():
        raise click.BadParameter(f"File {file!r} does not exist.", param_hint="'FILE'")
    # The data folder may be new. A server in memory would end with this command, and lose the plan.
    in_folder = is_embedded(settings.hosts) and folder_of(settings.hosts) is not None
    with open_client(settings, creates=in_folder, needs_root=False) as client:
        made = client.import_plan(file, archived=archived, **options)
        found = client.plan(made.path)  # reads the record, which the label needs later
        state = found.status().state
        if resume and state == "defining":
            found.mark_ready()
        elif resume and state == "paused":
            found.resume()
        status = found.status()
        print_facts(status_row(status, output), output)
    if status.state == "paused":
        click.echo(f"{label_of(found)} is paused. To resume it:\n{_resume(found)}", err=True)


@plan.command()
@result_options
def archived(output: str, settings: Settings) -> None:
    """List the archives of removed plans in the store, from all roots that share the store."""
    with open_client(settings) as client:
        found = client.archived_plans()
    rows = [with_dates(each._asdict(), output, "exported") for each in found]
    print_rows(rows, output, Archived._fields)
    if not rows:
        click.echo("there is no archive in the store", err=True)


# ---- Control plans.


def _resume(found: Plan) -> str:
    """Return the command that resumes the plan."""
    command: str = found.client.command(f"plan resume {int(found.number)}")
    return command


@plan.command("mark-ready")
@plan_argument
@connection_options
def mark_ready(plan: str, settings: Settings) -> None:
    """Mark a plan ready in place of its author. The plan must be complete: it runs from then on."""
    with open_client(settings) as client:
        found = client.plan(plan)
        label = label_of(found)
        found.mark_ready()
        state = found.status().state
    # A plan that was marked ready before keeps its state, for example paused.
    if state == "paused":
        message = f"was marked ready before, and is paused. To resume it:\n{_resume(found)}"
    else:
        message = "is done" if state == "done" else "is ready: workers can claim its tasks"
    click.echo(f"{label} {message}", err=True)


def _control(name: str, act: Callable[[Plan], None], help_text: str, done: str) -> None:
    @plan.command(name, help=help_text)
    @plan_argument
    @connection_options
    def command(plan: str, settings: Settings) -> None:
        with open_client(settings) as client:
            # An action that cannot be undone never picks the newest of several plans by itself.
            found = client.plan(plan, only=name == "cancel")
            act(found)
            click.echo(f"{label_of(found)} {done}", err=True)


_control("pause", Plan.pause, "Stop claiming tasks of a plan until it is resumed.", "paused")
_control("resume", Plan.resume, "Let a paused plan run again.", "resumed")
_control("cancel", Plan.cancel, "Stop a plan for good, with its running tasks.", "cancelled")


@plan.command("set")
@plan_argument
@click.option(
    "--weight",
    type=click.IntRange(1, WEIGHT_MAX),
    help="The plan's share of the slots, among plans of the same priority.",
)
@click.option(
    "--priority",
    type=click.IntRange(PRIORITY_MIN, PRIORITY_MAX),
    help="Plans of higher priority go first. Each task's priority changes by the difference.",
)
@result_options
def set_share(
    plan: str, weight: int | None, priority: int | None, output: str, settings: Settings
) -> None:
    """Change the weight or the priority of a plan, also while it runs."""
    if weight is None and priority is None:
        raise click.UsageError("nothing to set: give --weight, --priority, or both")
    with open_client(settings) as client:
        found = client.plan(plan)
        found.set(weight=weight, priority=priority)
        print_facts(status_row(found.status(), output), output)


@plan.command("rm")
@plan_argument
@yes_option
@connection_options
def remove(plan: str, yes: bool, settings: Settings) -> None:
    """Cancel a plan and delete it. A name that several plans have is refused."""
    with open_client(settings) as client:
        found = client.plan(plan, only=True)
        label, status = label_of(found), found.status()
        unfinished = count(status.tasks, "task")
        confirm(f"remove {label}, {status.state}, {unfinished} unfinished", yes=yes)
        click.echo(f"{label} removed, {count(found.remove(), 'task')} unfinished", err=True)


@plan.command()
@plan_argument
@connection_options
def retry(plan: str, settings: Settings) -> None:
    """Run the failed tasks of a plan again, with all their attempts.

    A plan made with on_failure="cascade", as schedules make them, is retried after its end: the
    failed tasks, and those that failed because of them, run again with the results of the others.
    """
    with open_client(settings) as client:
        found = client.plan(plan)
        label, retried = label_of(found), found.retry()
        if retried:
            click.echo(f"{label}: {count(retried, 'task')} run again", err=True)
            return
        dead = found.status().dead
        if not dead:
            click.echo(f"{label} has no failed task: nothing to retry", err=True)
            return
        click.echo(
            f"{label}: none of its {count(dead, 'failed task')} can run again: they were cancelled "
            "before all their arguments arrived, or failed because of such a task; create a new "
            "plan",
            err=True,
        )
        raise SystemExit(EXIT_FAILED)
