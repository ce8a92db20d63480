"""`zkplan stress`: many workers on a random graph, killed if wished, and every promise checked."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from zkplan.cli.common import output_option, timeout_option
from zkplan.errors import KeeperUnavailable, WaitTimeout, ZkplanError
from zkplan.stress.fleet import WorkersDie
from zkplan.stress.harness import Progress, Settings, run
from zkplan.stress.report import print_report, to_json
from zkplan.testing.java import find_zookeeper
from zkplan.testing.loopback import server_version
from zkplan.testing.provide import HOSTS_VARIABLE, NoZooKeeper, Provided, provided_zookeeper
from zkplan.testing.servers import ServerDidNotStart, ZooKeeperServer

FAILED, UNREACHABLE, TIMED_OUT, INTERRUPTED = 1, 3, 4, 130
#: A takeover waits for a session to end: short where workers are killed on purpose.
SESSION_TIMEOUT_S, SESSION_TIMEOUT_KILLS_S = 10.0, 4.0
# A session ends at the first tick after its time-out: with ZooKeeper's 2 s a takeover takes longer.
_TICK_TIME_MS = 500
_NO_ZOOKEEPER = """\
There is no ZooKeeper to run on. Do one of these:
  - in a checkout of zkplan: python3 dev.py stress   installs what is missing (Debian, Ubuntu)
  - zkplan stress --hosts HOST:PORT                  runs on a ZooKeeper that you have
  - docker compose up -d zk1, and --hosts as above
  - install Java, and libzookeeper-java or an unpacked release that ZOOKEEPER_HOME names"""


@click.command(short_help="Run many workers on a random graph and check every promise.")
@click.option(
    "--workers",
    type=click.IntRange(1, 200),
    default=10,
    show_default=True,
    envvar="ZKPLAN_STRESS_WORKERS",
    help="Worker processes.",
)
@click.option(
    "--tasks",
    type=click.IntRange(1, 100_000),
    default=100,
    show_default=True,
    envvar="ZKPLAN_STRESS_TASKS",
    help="Tasks of the plan.",
)
@click.option(
    "--deps",
    type=click.IntRange(0, 1000),
    default=10,
    show_default=True,
    envvar="ZKPLAN_STRESS_DEPS",
    help="Random earlier tasks that each task depends on.",
)
@click.option(
    "--sleep",
    "sleep_s",
    type=click.FloatRange(min=0),
    default=0.1,
    show_default=True,
    envvar="ZKPLAN_STRESS_SLEEP",
    help="Seconds that each task takes.",
)
@click.option(
    "--seed",
    type=int,
    default=None,
    envvar="ZKPLAN_STRESS_SEED",
    help="Chooses the graph and the victims; a random one by default, told in the report.",
)
@click.option(
    "--kill-every",
    "kill_every_s",
    type=click.FloatRange(min=0, min_open=True),
    default=None,
    envvar="ZKPLAN_STRESS_KILL_EVERY",
    help="Every so many seconds kill a worker with SIGKILL and start another.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    envvar="ZKPLAN_STRESS_THREADS",
    help="Tasks that one worker runs at a time.",
)
@click.option(
    "--session-timeout",
    "session_timeout_s",
    type=click.FloatRange(min=1),
    default=None,
    envvar="ZKPLAN_STRESS_SESSION_TIMEOUT",
    help=f"Seconds after which a silent worker is taken for dead.  [default: "
    f"{SESSION_TIMEOUT_S:g}, with kills {SESSION_TIMEOUT_KILLS_S:g}]",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=1),
    default=300.0,
    show_default=True,
    envvar="ZKPLAN_STRESS_TIMEOUT",
    help="Seconds that the plan may take.",
)
@click.option(
    "--hosts",
    envvar=["ZKPLAN_STRESS_HOSTS", "ZKPLAN_HOSTS"],
    show_envvar=True,
    help="ZooKeeper to use; without it one is started on loopback for the run.",
)
@click.option(
    "--root",
    default="/zkplan",
    show_default=True,
    envvar=["ZKPLAN_STRESS_ROOT", "ZKPLAN_ROOT"],
    help="The run works below a new root of this name with an ending, and removes it.",
)
@timeout_option
@output_option
@click.option(
    "--history",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    default=None,
    envvar="ZKPLAN_STRESS_HISTORY",
    help="Keep the history of the run in this file, a line of JSON per event.",
)
def stress(
    hosts: str | None,
    output: str,
    seed: int | None,
    session_timeout_s: float | None,
    connect_timeout: float,
    **options: Any,
) -> None:
    """Run many worker processes on a random graph, and check what zkplan promises.

    Each task checks that nobody else runs it at the same time and that its arguments are exactly
    the expected ones; what happened is recorded, and the whole history is checked at the end.
    Exit codes: 0 every check passed, 1 one failed, 3 no ZooKeeper, 4 timed out.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    settings = Settings(
        seed=int.from_bytes(os.urandom(4), "big") if seed is None else seed,
        session_timeout_s=session_timeout_s or _session_timeout(options["kill_every_s"]),
        connect_timeout_s=connect_timeout,
        **options,
    )
    try:
        with _zookeeper(hosts) as provided:
            click.echo(f"{provided}; seed {settings.seed}", err=True)
            with _bar(settings) as tell:
                report = run(provided.hosts, settings, tell)
    except KeyboardInterrupt:
        _end("interrupted: the workers are stopped, the plan is removed", INTERRUPTED)
    except NoZooKeeper:
        _end(_NO_ZOOKEEPER, UNREACHABLE)
    except (KeeperUnavailable, ServerDidNotStart, FileNotFoundError) as error:
        _end(str(error), UNREACHABLE)
    except WaitTimeout as error:
        _end(str(error), TIMED_OUT)
    except (WorkersDie, ZkplanError) as error:
        _end(str(error), FAILED)
    if output == "json":
        click.echo(to_json(report))
    else:
        print_report(report, Console())
    if report.timed_out:
        raise SystemExit(TIMED_OUT)
    if not report.passed:
        raise SystemExit(FAILED)


def _session_timeout(kill_every_s: float | None) -> float:
    return SESSION_TIMEOUT_S if kill_every_s is None else SESSION_TIMEOUT_KILLS_S


@contextmanager
def _zookeeper(hosts: str | None) -> Iterator[Provided]:
    """The one that is given, or one for the length of the block."""
    if hosts:
        yield Provided(hosts, server_version(hosts), "given")
    elif HOSTS_VARIABLE not in os.environ and find_zookeeper() is not None:
        with ZooKeeperServer(tick_time_ms=_TICK_TIME_MS) as server:
            yield Provided(server.hosts, server.version, "started for this run")
    else:
        with provided_zookeeper() as provided:
            yield provided


@contextmanager
def _bar(settings: Settings) -> Iterator[Callable[[Progress], None]]:
    """A progress bar on standard error where that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bar(
        *columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("starting workers", total=settings.tasks)

        def tell(progress: Progress) -> None:
            kills = f", {progress.kills} killed" if settings.kill_every_s else ""
            bar.update(task, completed=progress.done, description=f"running{kills}")

        yield tell


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM ends the run as Ctrl-C does: it cleans up."""
    raise KeyboardInterrupt


def _end(message: str, code: int) -> NoReturn:
    click.echo(message, err=True)
    raise SystemExit(code)
