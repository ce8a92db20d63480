"""`zkplan task ls`: list and filter the tasks of one plan or of all, finished ones too."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import click

from ..basics.settings import Settings
from ..client import Client
from ..protocol.core.plans_and_queues import refuse_hidden
from ..protocol.layout import number_of
from ..views.ended_tasks import ENDED, EndedTask, find_ended, plan_names, usual
from ..views.find import STATES, Filter, find_tasks
from ..views.history_search import Across
from ..views.outcomes import OutcomeSummary
from ..views.unfinished import FoundTask, TaskSummary
from ..views.workers import RUNNING
from . import spare_a_reader
from .common import (
    MOMENT,
    moment,
    open_client,
    print_rest,
    print_rows,
    result_options,
    seconds,
    with_dates,
)

COLUMNS = (
    *("plan", "plan_name", "number", "name", "state", "since", "started", "seconds"),
    *("attempts", "worker", "queue", "due", "error"),
)
_FACTOR = re.compile(r"\d{1,6}(\.\d{1,3})?x")


class _Factor(NamedTuple):
    """A multiple of the usual run time."""

    times: float


def _longer(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> float | _Factor | None:
    """Read a time, or a factor such as 3x. Raises BadParameter."""
    if _FACTOR.fullmatch(value or ""):
        return _Factor(float(str(value)[:-1]))
    return seconds(ctx, param, value)


@click.command("ls")
@click.argument("plan", metavar="[PLAN]", required=False)
@click.option("--all-plans", is_flag=True, help="The tasks of all plans under the root.")
@click.option(
    "--state",
    type=click.Choice([*STATES, *ENDED]),
    help=f"Only tasks in this state. {', '.join(ENDED)} need --all.",
)
@click.option("--worker", metavar="ID", help="Only tasks of the worker whose ID begins with this.")
@click.option("--name", metavar="GLOB", help="Only tasks with this name, such as 'load-*'.")
@click.option(
    "--error",
    metavar="GLOB",
    help="Only tasks whose last exception has this type, such as TimeoutError.",
)
@click.option(
    "--longer-than",
    metavar="TIME",
    callback=_longer,
    help="Only tasks that have been in their state longer than TIME (90s, 10m, 12h), or with --all "
    "have run longer. With --all, TIME may be a factor such as 3x: tasks that ran longer than 3 "
    "times the median of all tasks with their name.",
)
@click.option("--limit", type=click.IntRange(1), help="Maximum number of tasks; by default all.")
@click.option(
    "--all",
    "with_ended",
    is_flag=True,
    help="Also list the tasks that have ended, as far back as the histories reach.",
)
@click.option(
    "--since",
    metavar="TIME",
    callback=moment,
    help=f"Leave out the tasks that ended before TIME. {MOMENT}",
)
@click.option(
    "--outcomes",
    is_flag=True,
    help="List the kept results and failures instead of the unfinished tasks.",
)
@result_options
def list_tasks(
    plan: str | None,
    all_plans: bool,
    limit: int | None,
    outcomes: bool,
    with_ended: bool,
    since: float | None,
    longer_than: float | _Factor | None,
    output: str,
    settings: Settings,
    **given: Any,
) -> None:
    """List the unfinished tasks of a plan, oldest first, each with its state; with --all also the
    tasks that have ended.

    With --all-plans or a filter, `since` is when a task came into its state. The tree does not
    record what runs: the oldest claims of a worker, as many as it has slots, count as `running`,
    the others as `claimed ahead`. For both, `since` is when the task was claimed; its function
    began then or later. For a task that has ended, `since` is when it ended.
    """
    times = longer_than.times if isinstance(longer_than, _Factor) else None
    wanted = Filter(**given, longer_than=None if isinstance(longer_than, _Factor) else longer_than)
    if all_plans == (plan is not None):
        raise click.UsageError("give a PLAN, or --all-plans")
    if outcomes and (all_plans or with_ended or times or wanted != Filter()):
        raise click.UsageError("--outcomes lists the outcomes of one PLAN, without a filter")
    if not with_ended and (since is not None or times is not None or wanted.state in ENDED):
        raise click.UsageError(
            f"--since, --longer-than 3x and --state {'|'.join(ENDED)} need --all: they are for "
            "tasks that have ended"
        )
    with open_client(settings) as client:
        ended = _WithEnded(client, plan, wanted, since or 0.0, times) if with_ended else None
        if ended is not None:
            listing = _Listing(ended.rows(), COLUMNS)
        else:
            listing = _unfinished(client, plan, wanted, outcomes)
        rows = (_row(each._asdict(), output) for each in islice(listing.rows, limit))
        shown = print_rows(rows, output, listing.columns)
        for gap in ended.gaps if ended is not None else ():
            click.echo(gap, err=True)
        if plan is None:
            # Raise for hidden plans last, after the readable tasks are listed.
            client.transport.run(refuse_hidden(client.paths))
        if shown != limit:
            return
        if listing.total is not None:
            print_rest(listing.total - shown, output)
        elif next(listing.rows, None) is not None:
            click.echo("… and more: --limit leaves them out", err=output == "json")


class _Listing(NamedTuple):
    """The rows to print. `total` is None if their number is not known before the end."""

    rows: Iterator[OutcomeSummary | FoundTask | EndedTask]
    columns: tuple[str, ...]
    total: int | None = None


def _unfinished(client: Client, plan: str | None, wanted: Filter, outcomes: bool) -> _Listing:
    if plan is None:
        return _Listing(find_tasks(client, wanted), FoundTask._fields)
    found = client.plan(plan)
    if outcomes:
        return _Listing(iter(found.outcomes()), OutcomeSummary._fields, found.status().outcomes)
    tasks = find_tasks(client, wanted, [number_of(found.path)])
    if wanted != Filter():
        return _Listing(tasks, FoundTask._fields)
    return _Listing(tasks, TaskSummary._fields, found.status().tasks)


def _row(facts: dict[str, Any], output: str) -> dict[str, Any]:
    facts = with_dates(facts, output, "due", "when", "since", "started")
    if facts["name"] is None and output != "json":
        facts["name"] = "(cannot be read here)"
    return facts


class _WithEnded:
    """The unfinished and the ended tasks of one plan, or of all plans if `plan` is None.

    `times` keeps only tasks that ran, or have been running, more than this many times as long as
    is usual for their name. Once the rows are listed, `gaps` lists what the histories lack.
    """

    def __init__(
        self, client: Client, plan: str | None, wanted: Filter, since: float, times: float | None
    ) -> None:
        self._client, self._wanted, self._since, self._times = client, wanted, since, times
        self._names = plan_names(client)
        self._paths = list(self._names) if plan is None else [client.plan(plan).path]
        self._numbers = None if plan is None else [number_of(self._paths[0])]
        self._read: list[Across] = []

    def rows(self) -> Iterator[EndedTask | FoundTask]:
        """Yield the ended tasks, by plan and number, then the unfinished ones.

        The unfinished tasks are read first: a task that ends meanwhile is still listed once.
        """
        spare_a_reader()
        longest = self._longest()
        others = dict[tuple[str, str], FoundTask]()
        if self._wanted.state not in ENDED:
            others = {(task.plan, task.number): task for task in self._unfinished(longest)}
        if self._wanted.state is None or self._wanted.state in ENDED:
            across = self._across(self._paths, self._since)
            for task in find_ended(across, self._names, self._wanted, self._since, longest):
                other = others.pop((task.plan, task.number), None)
                is_dead = other is not None and other.state == "dead"
                yield task._replace(state="dead") if is_dead else task
        yield from others.values()

    def _across(self, paths: list[str], since: float = 0.0) -> Across:
        across = Across(self._client.values, paths, since)
        self._read.append(across)
        return across

    def _longest(self) -> Callable[[str], float] | None:
        """Return the seconds for the name of a task: only tasks that ran longer match."""
        if self._times is None:
            least = self._wanted.longer_than
            return None if least is None else lambda _: least
        times = self._times
        if self._wanted.state not in (None, RUNNING, *ENDED):
            raise click.UsageError(
                f"tasks that are {self._wanted.state} do not run, so a factor such as 3x does not "
                "fit: give --longer-than a time such as 90s"
            )
        known = usual(self._across(list(self._names)))
        self._paths = [path for path in self._paths if known.exceeded(path, times)]
        return lambda name: times * known.seconds(name)

    def _unfinished(self, longest: Callable[[str], float] | None) -> Iterator[FoundTask]:
        if self._times is None or longest is None:
            yield from find_tasks(self._client, self._wanted, self._numbers)
            return
        for task in find_tasks(self._client, self._wanted._replace(state=RUNNING), self._numbers):
            if time.time() - task.since > longest(task.name or ""):
                yield task

    @property
    def gaps(self) -> list[str]:
        return list(dict.fromkeys(gap for across in self._read for gap in across.gaps))
