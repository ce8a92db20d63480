"""`zkplan worker`: run workers until told to stop; `zkplan worker ls`: who is there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import click

from ..backoff import Backoff
from ..records import WorkerRecord
from ..worker import THREADS_DEFAULT, Worker
from .common import connection_options, log_to_stderr, open_client, output_option, print_rows

#: A child that dies is started again; the delay grows while it dies young.
_RESTART = Backoff(initial_s=0.2, max_s=10.0, jitter=0.3)
_YOUNG_S = 10.0
_GIVEN = click.core.ParameterSource.COMMANDLINE


@click.group(invoke_without_command=True)
@connection_options
@click.option("--threads", default=THREADS_DEFAULT, show_default=True, help="Slots per process.")
@click.option(
    "--processes", default=1, show_default=True, help="Worker processes; dead ones are replaced."
)
@click.option(
    "--session-timeout",
    default=10.0,
    show_default=True,
    help="Seconds after which the tasks of a dead worker are taken over.",
)
@click.option(
    "--grace",
    default=30.0,
    show_default=True,
    help="Seconds running tasks get to end when stopping.",
)
@click.pass_context
def worker(
    ctx: click.Context,
    hosts: str,
    root: str,
    secret: str,
    connect_timeout: float,
    threads: int,
    processes: int,
    session_timeout: float,
    grace: float,
) -> None:
    """Claim and run the tasks of every ready plan. SIGTERM and SIGINT drain: claim nothing more,
    finish or hand back within --grace seconds. The current folder is importable."""
    if ctx.invoked_subcommand is not None:
        given = [name for name in ctx.params if ctx.get_parameter_source(name) is _GIVEN]
        if given:
            raise click.UsageError(f"give the options after `{ctx.invoked_subcommand}`")
        return
    if processes < 1:
        raise click.BadParameter("must be at least 1", param_hint="--processes")
    if processes > 1:
        sys.exit(_supervise(processes, grace))
    sys.path.insert(0, os.getcwd())
    client = open_client(hosts, root, secret, connect_timeout, session_timeout=session_timeout)
    try:
        made = Worker(client, threads)
        made.on_ready(lambda name: click.echo(f"worker {name} ready", err=True))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: made.stop(grace))
        made.run()
    finally:
        client.close()


def _supervise(processes: int, grace: float) -> int:
    """Run `processes` children of this very command; replace the dead, drain on a signal."""
    log_to_stderr()
    command = [sys.executable, "-m", "zkplan", *sys.argv[1:], "--processes", "1"]
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    # A session of its own: Ctrl-C in the terminal reaches the children once, through this process.
    children = [subprocess.Popen(command, start_new_session=True) for _ in range(processes)]
    born = [time.monotonic()] * processes
    deaths = [0] * processes
    due: list[float | None] = [None] * processes
    worst = 0
    while not stopping:
        for index, child in enumerate(children):
            now = time.monotonic()
            if due[index] is None and child.poll() is not None:
                if child.returncode in (2, 3):
                    worst = (
                        child.returncode
                    )  # wrong usage or no ZooKeeper: a new one would fail alike
                    stopping = True
                    break
                deaths[index] = deaths[index] + 1 if now - born[index] < _YOUNG_S else 0
                due[index] = now + _RESTART.delay_s(deaths[index], 0.5)
                click.echo(f"worker process {child.pid} ended with {child.returncode}", err=True)
            elif due[index] is not None and now >= (due[index] or 0.0):
                children[index] = subprocess.Popen(command, start_new_session=True)
                born[index], due[index] = now, None
        signal.sigtimedwait([signal.SIGCHLD], 0.2)
    for child in children:
        if child.poll() is None:
            child.terminate()
    deadline = time.monotonic() + grace + 20
    for child in children:
        try:
            child.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    return worst


@worker.command("ls")
@output_option
@connection_options
def list_workers(output: str, **connection: Any) -> None:
    """The living workers."""
    with open_client(**connection) as client:
        rows = [found._asdict() for found in client.workers()]
    print_rows(rows, output, WorkerRecord._fields)
