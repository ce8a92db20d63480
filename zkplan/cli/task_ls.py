"""`zkplan task ls`: the unfinished tasks of a plan or of all plans, filtered; kept outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, NamedTuple

import click

from ..client import Client
from ..history.reading import ended_tasks
from ..inspection.across import STATES, Filter, FoundTask, find_tasks
from ..inspection.outcomes import OutcomeSummary
from ..inspection.unfinished import TaskSummary
from ..protocol.layout import number_of
from ..protocol.look import refuse_hidden
from ..settings import Settings
from ..text import date_time
from .common import connection_options, open_client, output_option, print_rest, print_rows
from .durations import seconds


@click.command("ls")
@click.argument("plan", metavar="[PLAN]", required=False)
@click.option("--all-plans", is_flag=True, help="The tasks of all plans under the root.")
@click.option("--state", type=click.Choice(STATES), help="Tasks in that state.")
@click.option("--worker", metavar="ID", help="Tasks that this worker holds; its ID may be cut.")
@click.option("--name", metavar="GLOB", help="Tasks of such a name, as 'load-*'.")
@click.option(
    "--error", metavar="GLOB", help="Tasks whose last exception has such a type, as TimeoutError."
)
@click.option(
    "--longer-than",
    metavar="TIME",
    callback=seconds,
    help="Tasks that have been in their state for longer: 90s, 10m, 12h.",
)
@click.option(
    "--limit", type=click.IntRange(1), help="List at most this many tasks; by default all."
)
@click.option(
    "--all",
    "with_ended",
    is_flag=True,
    help="Also the tasks that have ended, as far as the history of the plan reaches.",
)
@click.option(
    "--outcomes",
    is_flag=True,
    help="List the kept results and failures instead of the unfinished tasks.",
)
@output_option
@connection_options
def list_tasks(
    plan: str | None,
    all_plans: bool,
    limit: int | None,
    outcomes: bool,
    with_ended: bool,
    output: str,
    settings: Settings,
    **given: Any,
) -> None:
    """List the unfinished tasks of a plan, oldest first, each with its state.

    With --all-plans or a filter also since when a task has been in its state. Of claimed tasks,
    the oldest of each worker are `running`, as many as it has slots, and the others are `claimed
    ahead`: the tree has no record of what runs. `since` is then when the task was claimed; its
    function began then or later.
    """
    wanted = Filter(**given)
    if all_plans == (plan is not None):
        raise click.UsageError("give a PLAN, or --all-plans")
    if outcomes and (all_plans or wanted != Filter()):
        raise click.UsageError("--outcomes lists the outcomes of one PLAN, without a filter")
    if with_ended and (all_plans or outcomes or wanted != Filter()):
        raise click.UsageError("--all lists the tasks of one PLAN, without a filter")
    with open_client(settings) as client:
        listing = _listing(client, plan, wanted, outcomes)
        if with_ended and plan is not None:
            listing = _with_ended(client, plan, listing)
        rows = (_row(each._asdict(), output) for each in islice(listing.rows, limit))
        shown = print_rows(rows, output, listing.columns)
        if plan is None:
            # Those that may be read are listed all the same.
            client.transport.run(refuse_hidden(client.paths))
        if shown != limit:
            return
        if listing.total is not None:
            print_rest(listing.total - shown, output)
        elif next(listing.rows, None) is not None:
            click.echo("… and more: --limit leaves them out", err=output == "json")


class _Listing(NamedTuple):
    """`total` is None where nobody knows it before the end."""

    rows: Iterator[OutcomeSummary | TaskSummary | FoundTask | _EndedTask]
    columns: tuple[str, ...]
    total: int | None


def _listing(client: Client, plan: str | None, wanted: Filter, outcomes: bool) -> _Listing:
    if plan is None:
        return _Listing(find_tasks(client, wanted), FoundTask._fields, None)
    found = client.plan(plan)
    if wanted != Filter():
        rows: Iterable[Any] = find_tasks(client, wanted, [number_of(found.path)])
        return _Listing(iter(rows), FoundTask._fields, None)
    status = found.status()
    if outcomes:
        return _Listing(iter(found.outcomes()), OutcomeSummary._fields, status.outcomes)
    return _Listing(iter(found.tasks()), TaskSummary._fields, status.tasks)


class _EndedTask(NamedTuple):
    """A task that has ended, as the history of its plan tells it."""

    number: str
    name: str
    state: str
    attempts: int
    worker: str
    started: float | None
    seconds: float | None
    error: str


def _with_ended(client: Client, plan: str, listing: _Listing) -> _Listing:
    found = client.plan(plan)
    ended = ended_tasks(client.transport, found.path)
    if ended is None:
        raise click.UsageError(f"{found.path} keeps no history: --all has nothing to show")
    rows = (
        _EndedTask(
            *(f"{task.number:010d}", task.name, task.state, task.claims, task.worker),
            task.started_ms / 1000 if task.started_ms else None,
            task.ran_ms / 1000 if task.ran_ms >= 0 else None,
            task.error,
        )
        for task in ended
    )
    more = [each for each in _EndedTask._fields if each not in listing.columns]
    columns = (*listing.columns, *more)
    return _Listing(chain(rows, listing.rows), columns, (listing.total or 0) + len(ended))


def _row(facts: dict[str, Any], output: str) -> dict[str, Any]:
    for name in ("due", "when", "since", "started"):
        if facts.get(name) is not None:
            facts[name] = date_time(facts[name], output != "json")
    if facts["name"] is None and output != "json":
        facts["name"] = "(cannot be read here)"
    return facts
