"""`zkplan stress`: run many workers on a random graph, kill some, and check every promise."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from ..basics.settings import Settings
from ..basics.settings_fields import JSON
from ..errors import AccessDenied, ZkplanError
from ..testing.server_process import EmbeddedServerProcess, ServerDidNotStart, server_version
from ..testing.servers import Provided, of_our_own
from ..testing.stress_run import Report, StressSettings, run
from ..transport.addresses import is_embedded, server_at
from ..views.progress import progress_bar
from . import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_TIMED_OUT,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
    end,
    exit_code,
)
from .common import option, optional_connection_options, output_option


@contextmanager
def zookeeper_for(command: str, settings: Settings) -> Iterator[tuple[Provided, Settings]]:
    """Yield the ZooKeeper of the settings, or an embedded server, and the settings to connect.

    An error in the block ends the command with one line on stderr and an exit code. SIGTERM ends
    the command as Ctrl-C does, so that it cleans up.
    """
    if settings.serializer == JSON:
        end(f"zkplan {command} runs pickles: give --serializer pickle", EXIT_USAGE)
    # SIGINT too: a shell without job control ignores it for commands in the background.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        hosts = settings.hosts
        if settings.names_server and is_embedded(hosts):
            with server_at(hosts) as server:
                yield of_our_own(server.hosts, hosts), replace(settings, hosts=server.hosts)
        elif settings.names_server:
            yield Provided(hosts, server_version(hosts), "given"), settings
        else:
            # In a process of its own: here it would share the interpreter with the harness.
            with EmbeddedServerProcess(is_open=False) as started:
                provided = of_our_own(started.hosts, f"started for zkplan {command}")
                yield provided, replace(settings, hosts=started.hosts)
    except KeyboardInterrupt:
        end("interrupted; nothing is left behind", EXIT_INTERRUPTED)
    except ServerDidNotStart as error:
        end(str(error), EXIT_UNREACHABLE)
    except ZkplanError as error:
        # Nothing here is a usage error: the run has failed, unless it was not allowed to begin.
        code = exit_code(error)
        is_failed = code == EXIT_USAGE and not isinstance(error, AccessDenied)
        end(str(error), EXIT_FAILED if is_failed else code)


# ---- Show the report of a stress run: as tables for people, as JSON for programs.


_VIOLATIONS_SHOWN = 5


def to_json(report: Report) -> str:
    """Return the report for programs; times in seconds."""
    facts = asdict(replace(report, verdicts=[]))
    facts["settings"]["history"] = str(report.settings.history or "") or None
    facts["verdicts"] = [each._asdict() | {"passed": each.passed} for each in report.verdicts]
    return json.dumps({**facts, "rate": report.rate, "passed": report.passed}, indent=2)


def print_report(report: Report, console: Console) -> None:
    """Print the report for people, then the first violations of each promise."""
    settings = report.settings
    facts = Table(show_header=False, box=None)
    manner = " of one command" if settings.supervised else ""
    facts.add_row(
        "workers", f"{settings.workers} processes{manner}, threads in each: {settings.threads}"
    )
    facts.add_row("tasks", f"{settings.tasks}, {report.edges} edges, seed {settings.seed}")
    facts.add_row("executions", str(report.executions))
    facts.add_row("workers killed", _kills(report))
    facts.add_row("sessions lost", f"{report.lost_sessions} (not counting killed workers)")
    facts.add_row("takeovers", _takeovers(report.takeovers))
    facts.add_row("elapsed", f"{report.elapsed_s:.2f} s, submission {report.submitted_s:.2f} s")
    facts.add_row("rate", f"{report.rate:.0f} tasks/s")
    console.print(facts)
    checks = Table("invariant", "check", "verdict")
    for verdict in report.verdicts:
        passed = "[green]passed[/]" if verdict.passed else "[bold red]FAILED[/]"
        checks.add_row(verdict.invariant, verdict.promise, passed)
    console.print(checks)
    for verdict in report.verdicts:
        for violation in verdict.violations[:_VIOLATIONS_SHOWN]:
            console.print(f"FAILED  {verdict.promise}: {violation}", markup=False, style="red")
        more = len(verdict.violations) - _VIOLATIONS_SHOWN
        if more > 0:
            console.print(f"        and {more} more like it", style="red")
    if report.problem:
        console.print(f"FAILED  {report.problem}", markup=False, style="red")


def _kills(report: Report) -> str:
    if report.kills or not report.settings.kill_every_s:
        return str(report.kills)
    return "none: the run ended before the first kill; take more tasks, or a smaller --kill-every"


def _takeovers(seconds: list[float]) -> str:
    if not seconds:
        return "none"
    return f"{len(seconds)}, after {median(seconds):.1f} s (median), {seconds[-1]:.1f} s at most"


# ---- The command.


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
@_option("--timeout timeout_s", click.FloatRange(min=1), 300.0, "Maximum seconds for the plan.")
@output_option
@_option(
    "--history",
    click.Path(dir_okay=False, writable=True, path_type=Path),
    None,
    "Write the history of the run to this file, one line of JSON per event.",
)
@optional_connection_options
def stress(output: str, seed: int | None, settings: Settings, **options: Any) -> None:
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
    wanted = StressSettings(
        seed=int.from_bytes(os.urandom(4), "big") if seed is None else seed,
        session_timeout_s=session_s,
        root=settings.root,
        **options,
    )
    with zookeeper_for("stress", settings) as (provided, connection):
        click.echo(f"{provided}; seed {wanted.seed}", err=True)
        with progress_bar("tasks") as show:

            def progress(done: int, kills: int) -> None:
                if show is not None:
                    show(done, wanted.tasks, f"{kills} killed" if wanted.kill_every_s else "")

            report = run(connection, wanted, progress)
    if output == "json":
        click.echo(to_json(report))
    else:
        print_report(report, Console())
    if report.timed_out:
        raise SystemExit(EXIT_TIMED_OUT)
    if not report.passed:
        raise SystemExit(EXIT_FAILED)
