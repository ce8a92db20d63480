"""`zkplan worker`: run workers until a signal stops them."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NoReturn

import click

from ..author.options import memory_bytes
from ..basics.log import get_logger
from ..basics.settings import Settings, take_secrets_away, with_password
from ..basics.settings_fields import POLICIES
from ..client import Client, connect_with
from ..processes.crew import SigningOff
from ..processes.worker import LowerEnd
from ..protocol.layout import DEFAULT_QUEUE
from ..runtime.attempts import MESSAGES
from ..runtime.isolation_processes import TASKS_PER_CHILD
from ..runtime.plan_shares import check_policy
from ..transport.addresses import is_embedded, server_at
from ..worker import THREADS_DEFAULT, THREADS_MAX, Worker, check_isolation
from . import EXIT_FAILED, spare_what_stays
from .common import connection_options, log_options, open_client, setting_option
from .functions import allowed_functions, function_options, import_kinds, set_import_path
from .metrics import ListenAddress, metrics_options, trace_tasks, watched_processes, watched_worker
from .supervisor import HangUp, Leaving, Successor, renew_on_change
from .workers_queues_limits import drain, list_workers, pause, resume

_GIVEN = click.core.ParameterSource.COMMANDLINE
#: A worker whose loop has broken ends within this time plus the session time-out. If nothing else
#: ends it by then, SIGALRM does.
_ENDS_WITHIN_S = 30
_IN_MEMORY = (
    "this worker has its server, and all plans, in its memory. Give the server a folder "
    "(--hosts embedded:FOLDER), or run it on its own (`zkplan server`)"
)

logger = get_logger("zkplan.processes")


@click.group(invoke_without_command=True)
@connection_options
@click.option(
    "--threads",
    type=click.IntRange(1, THREADS_MAX),
    default=THREADS_DEFAULT,
    help="Tasks that each process runs at a time.",
)
@setting_option("queue", multiple=True)
@setting_option("share", type=click.Choice(POLICIES), metavar=None)
@setting_option("task_output")
@click.option(
    "--processes",
    type=click.IntRange(1, 1000),
    default=1,
    help="Number of worker processes. With 2 or more, a process that dies is replaced.",
)
@click.option(
    "--max-abandoned",
    type=click.IntRange(1),
    help="End the worker when this many functions timed out or were cancelled and still hold a "
    "thread. By default one process has no limit, and goes on with fewer slots. With 2 or more "
    "processes the default is the value of --threads, and a process that ends is replaced.",
)
@click.option(
    "--grace",
    type=click.FloatRange(0, 30 * 24 * 3600),
    default=30.0,
    help="Seconds that running tasks have to end when the worker is stopped.",
)
@click.option(
    "--reload",
    "reloads",
    is_flag=True,
    help="For development: load new code, as SIGHUP does, when the file of an imported module "
    "changes.",
)
@click.option(
    "--isolation",
    type=click.Choice(["thread", "process"]),
    default="thread",
    help="Where to run tasks that do not set `isolation`: in a thread of the worker, or each in a "
    "process of its own (Linux), whose death costs only one attempt of that task.",
)
@click.option(
    "--memory-limit",
    metavar="SIZE",
    help="Most memory of each task in a process of its own, such as 2GB. By default a share of "
    "this machine's memory.",
)
@click.option(
    "--tasks-per-child",
    type=click.IntRange(min=1),
    default=TASKS_PER_CHILD,
    help="Replace the process of a slot after this many tasks.",
)
@click.option(
    "--quiet",
    is_flag=True,
    help="Of zkplan's own log, write only warnings and errors. Tasks log as usual.",
)
@click.option(
    "--log-messages",
    is_flag=True,
    help="Log the messages of exceptions that tasks raise, not only their types. Messages may hold "
    "arguments.",
)
@log_options
@metrics_options
@click.option(
    "--traces",
    is_flag=True,
    help="Trace tasks with OpenTelemetry: a span for each attempt. The OTEL_… variables say where "
    "spans go. Needs zkplan[opentelemetry].",
)
@function_options
def worker(
    threads: int,
    processes: int,
    max_abandoned: int | None,
    grace: float,
    reloads: bool,
    isolation: Literal["thread", "process"],
    memory_limit: str | None,
    tasks_per_child: int,
    quiet: bool,
    log_messages: bool,
    import_path: tuple[str, ...],
    allow: tuple[str, ...],
    kinds: tuple[str, ...],
    metrics: ListenAddress | None,
    traces: bool,
    settings: Settings,
) -> None:
    """Run a worker, which claims and runs the tasks of its queues in all ready plans.

    SIGTERM and SIGINT drain the worker: it claims nothing more, its running tasks have --grace
    seconds to end, and it hands back those that still run then. At a second signal it hands them
    back at once. SIGHUP loads new code: the worker drains, and starts again under the same process
    ID. With --processes new processes start, and the old ones drain one by one. Tasks can import
    the modules in the current folder.

    With --serializer json nothing is unpickled, and only functions that --allow and --kinds name
    run.
    """
    ctx = click.get_current_context()
    if ctx.invoked_subcommand is not None:
        given = [name for name in ctx.params if ctx.get_parameter_source(name) is _GIVEN]
        if given:
            raise click.UsageError(f"give the options after `{ctx.invoked_subcommand}`")
        return
    allowed_functions(settings, allow, kinds)
    if quiet:
        logging.getLogger("zkplan").setLevel(logging.WARNING)
    if log_messages:
        MESSAGES.setLevel(logging.INFO)
    take_secrets_away()  # the settings have them, and tasks see their worker's environment
    check_isolation(isolation)
    limit = memory_bytes(memory_limit, "--memory-limit")
    settings = with_password(settings)
    if traces:
        trace_tasks()
    if processes > 1:
        _supervise(settings, processes, grace, max_abandoned or threads, metrics)
        return
    line = LowerEnd()
    set_import_path(settings, import_path)
    import_kinds(kinds)

    def make(client: Client) -> Worker:
        return Worker(
            client,
            threads,
            queues=settings.queue or (DEFAULT_QUEUE,),
            isolation=isolation,
            memory_limit=limit,
            tasks_per_child=tasks_per_child,
            max_abandoned=max_abandoned,
            allow=allow,
            share=check_policy(settings.share),
            task_output=settings.task_output,
        )

    _work(settings, make, line, grace, quiet, metrics, reloads)


def _work(
    settings: Settings,
    make: Callable[[Client], Worker],
    line: LowerEnd,
    grace: float,
    quiet: bool,
    metrics: ListenAddress | None,
    reloads: bool,
) -> None:
    """Run one worker in this process until a signal stops it."""
    hang_up = HangUp()
    successor = Successor(settings, line, hang_up)
    client = open_client(settings, creates=True)
    try:
        made = make(client)
        spare_what_stays()
        leaving = _drain_on_signals(made, line, grace, hang_up)
        if client.ends_with_process and reloads:
            raise click.UsageError(f"--reload: {_IN_MEMORY}")
        if reloads:
            renew_on_change(leaving.renew)
        made.on_ready(lambda name: _say_ready(name, line, quiet))
        with watched_worker(made, metrics):
            made.run()
        if made.drained:
            line.report_drained()
    except BaseException:
        _end_in_any_case(int(settings.session_timeout) + _ENDS_WITHIN_S)
        raise
    finally:
        client.close()
    has_lost_threads = bool(made.statistics().written_off)
    if leaving.starts_anew and not made.drained:
        successor.start(leaving, at_exit=not has_lost_threads)
    if has_lost_threads:
        _leave_threads(EXIT_FAILED if made.is_worn_out else 0)


def _leave_threads(code: int) -> NoReturn:
    """Exit at once: the interpreter would wait for the threads of functions that never return."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _end_in_any_case(within_s: int) -> None:
    """Let SIGALRM end the process after `within_s`, even if its threads left a lock that is never
    released. SIGALRM needs neither a thread nor memory."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(within_s)


def _drain_on_signals(made: Worker, line: LowerEnd, grace_s: float, hang_up: HangUp) -> Leaving:
    """Have signals, and the end of the supervisor, drain the worker."""
    leaving = Leaving(made.stop, grace_s)

    def renew() -> None:
        if made.client.ends_with_process:
            logger.error("SIGHUP is ignored: %s", _IN_MEMORY)
        else:
            leaving.renew()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: leaving.leave_or_hurry())
    hang_up.install(renew, leaving.leave)
    # A process that a task forks must end by these signals: it has no worker to drain.
    os.register_at_fork(after_in_child=_forget_signals)
    # A worker that drains already keeps its pace: a later `stop` can only shorten the grace.
    line.leave_with_supervisor(leaving.leave)
    return leaving


def _supervise(
    settings: Settings,
    processes: int,
    grace_s: float,
    max_abandoned: int,
    metrics: ListenAddress | None,
) -> None:
    from .supervisor import Supervisor  # here: most workers are one process

    with server_at(settings.hosts) as served:
        # Each process would start an embedded server of its own, so this process serves them all.
        # If another process serves the folder, each worker follows that server by itself.
        theirs = settings
        if is_embedded(settings.hosts) and not served.is_elsewhere:
            theirs = replace(settings, hosts=served.hosts, store=settings.store or served.store)
            if not (settings.secret or settings.secret_files):
                theirs = replace(theirs, secret=served.secret.encode())
        signing_off = SigningOff(
            lambda: connect_with(replace(settings, hosts=served.find())), settings.session_timeout
        )
        more = ["--max-abandoned", str(max_abandoned)]
        supervisor = Supervisor(processes, grace_s, signing_off, theirs, more)
        with watched_processes(metrics, supervisor.pids) as words:
            supervisor.run(words)


def _say_ready(name: str, line: LowerEnd, quiet: bool) -> None:
    line.report_ready(name)
    if not quiet:
        click.echo(f"worker {name} ready", err=True)


def _forget_signals() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


for command in (list_workers, drain, pause, resume):
    worker.add_command(command)
