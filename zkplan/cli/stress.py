"""`zkplan stress`: many workers on a random graph, killed if wished, and every promise checked."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from ..inspection.progress import progress_bar
from ..settings import Settings as Connecting
from ..stress.harness import Settings, run
from ..stress.report import print_report, to_json
from . import EXIT_FAILED, EXIT_TIMED_OUT
from .common import option, optional_connection_options, output_option
from .running import zookeeper_for

#: A takeover waits until a session ends, so runs that kill workers use a short time-out.
SESSION_TIMEOUT_KILLS_S = 4.0


_option = partial(option, prefix="ZKPLAN_STRESS_", show_envvar=False)


@click.command(short_help="Run many workers on a random graph and check every promise.")
@_option("--workers", click.IntRange(1, 200), 10, "Number of worker processes.")
@_option("--tasks", click.IntRange(1, 100_000), 100, "Number of tasks in the plan.")
@_option(
    "--deps",
    click.IntRange(0, 1000),
    10,
    "Number of random earlier tasks that each task depends on.",
)
@_option("--sleep sleep_s", click.FloatRange(min=0), 0.1, "Seconds that each task takes.")
@_option(
    "--seed",
    int,
    None,
    "Seed of the graph and of the kills. By default it is random; the report shows it.",
)
@_option(
    "--kill-every kill_every_s",
    click.FloatRange(min=0, min_open=True),
    None,
    "Seconds between two kills: SIGKILL ends one worker and another is started.",
)
@click.option(
    "--supervised",
    is_flag=True,
    envvar="ZKPLAN_STRESS_SUPERVISED",
    help="Run the workers as processes of one `zkplan worker`. It signs off a killed worker, so "
    "that others take over its tasks without waiting until its session ends.",
)
@_option("--threads", click.IntRange(1, 64), 1, "Tasks that each worker runs at a time.")
@_option("--timeout timeout_s", click.FloatRange(min=1), 300.0, "Seconds that the plan may take.")
@output_option
@_option(
    "--history",
    click.Path(dir_okay=False, writable=True, path_type=Path),
    None,
    "Write the history of the run to this file, one line of JSON per event.",
)
@optional_connection_options
def stress(
    output: str,
    seed: int | None,
    settings: Connecting,
    **options: Any,
) -> None:
    """Run many worker processes on a random graph, and check what zkplan promises.

    Without --hosts and --profile the command starts an embedded server on loopback. The run creates
    a root whose name starts with --root, and removes it at the end. The session time-out is 4 s by
    default if workers are killed.

    Each task checks that no other worker runs it at the same time, and that its arguments are the
    expected ones. All events are recorded, and the whole history is checked at the end. Exit codes:
    0 every check passed, 1 one failed, 3 no ZooKeeper, 4 timed out.
    """
    if options["supervised"] and options["workers"] < 2:
        raise click.UsageError("--supervised needs --workers of at least 2")
    session_s = settings.session_timeout
    if options["kill_every_s"] and "session_timeout" not in settings.origins:
        session_s = SESSION_TIMEOUT_KILLS_S
    wanted = Settings(
        seed=int.from_bytes(os.urandom(4), "big") if seed is None else seed,
        session_timeout_s=session_s,
        root=settings.root,
        **options,
    )
    with zookeeper_for("stress", settings) as (provided, connection):
        click.echo(f"{provided}; seed {wanted.seed}", err=True)
        with progress_bar("tasks") as show:

            def tell(done: int, kills: int) -> None:
                if show is not None:
                    killed = f"{kills} killed" if wanted.kill_every_s else ""
                    show(done, wanted.tasks, killed)

            report = run(connection, wanted, tell)
    if output == "json":
        click.echo(to_json(report))
    else:
        print_report(report, Console())
    if report.timed_out:
        raise SystemExit(EXIT_TIMED_OUT)
    if not report.passed:
        raise SystemExit(EXIT_FAILED)
