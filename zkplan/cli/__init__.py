"""The command line: its commands and its exit codes; data on stdout, logs and progress on stderr.

Exit codes: 0 ok, 1 a plan failed, 2 usage, 3 ZooKeeper unreachable or restored,
4 timed out, 130 interrupted.
"""

from __future__ import annotations

import gc
import importlib
import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NoReturn

import click

from ..basics.log import CONTINUED, TASK_FIELDS, continued, exception_text, note_task
from ..basics.text import printable
from ..errors import (
    PlanCancelled,
    PlanFailed,
    PlanStuck,
    ServerRolledBack,
    TaskFailed,
    WaitTimeout,
    ZkplanError,
    ZooKeeperUnavailable,
)

_SETTINGS = {
    "auto_envvar_prefix": "ZKPLAN",
    "help_option_names": ["-h", "--help"],
    "show_default": True,
}
COMMANDS = (
    *("server", "worker", "plan", "task", "queue", "limit", "top", "schedule", "run", "root"),
    *("serve", "config", "metrics", "stress", "demo"),
)
#: Commands whose module has another name.
_ELSEWHERE = {"queue": "workers_queues_limits", "limit": "workers_queues_limits"}
EXIT_FAILED, EXIT_USAGE, EXIT_UNREACHABLE, EXIT_TIMED_OUT = 1, 2, 3, 4
EXIT_INTERRUPTED = 130  # as a shell reports Ctrl-C


class _Lazy(click.Group):
    """Imports the module of a command when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = f"{__name__}.{_ELSEWHERE.get(name, name)}"
        if module not in sys.modules:
            with spared_imports():
                importlib.import_module(module)
        command: click.Command = getattr(sys.modules[module], name)
        return command


@click.group(cls=_Lazy, context_settings=_SETTINGS)
@click.version_option(package_name="zkplan")
def cli() -> None:
    """Run graphs of Python functions, with ZooKeeper as the only moving part."""


def exit_code(error: ZkplanError) -> int:
    """Return the exit code for an error."""
    if isinstance(error, ZooKeeperUnavailable | ServerRolledBack):
        return EXIT_UNREACHABLE  # run again, the command may succeed
    if isinstance(error, WaitTimeout):
        return EXIT_TIMED_OUT
    if isinstance(error, PlanFailed | PlanCancelled | PlanStuck | TaskFailed):
        return EXIT_FAILED
    return EXIT_USAGE


def end(message: str, code: int) -> NoReturn:
    """Print `message` to stderr, and exit with `code`."""
    first, *more = message.split("\n")
    # Parts of a message may come from the tree: no further line may look like a new message.
    rest = [continued("\n".join(more))] if more else []
    click.echo("\n".join([f"zkplan: {printable(first)}", *rest]), err=True)
    sys.exit(code)


def main(args: list[str] | None = None) -> NoReturn:
    """Run the command line. An error becomes one line on stderr and an exit code."""
    # In click's standalone mode Ctrl-C would end with 1, which means that a plan failed.
    try:
        code = cli.main(args=args, prog_name="zkplan", standalone_mode=False)
    except ZkplanError as error:
        end(str(error), exit_code(error))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        end("interrupted", EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader has closed stdout, as `head` does. Python would report that again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)
    sys.exit(code if isinstance(code, int) else 0)


# ---- Logs: the lines of any logger, made printable.


class PrintableFormatter(logging.Formatter):
    """Makes log lines printable and marks each further line of a record.

    Otherwise tasks and libraries could forge log lines of zkplan.
    """

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return _time_of(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = _fields_of(record)
        if "attempt" in fields:
            fields["attempt"] += 1  # people count attempts from 1: see docs/start/reference.md
        found = " ".join(f"{name}={value}" for name, value in fields.items())
        line = super().formatMessage(record)
        if not found:
            return line
        first, *more = line.split("\n")
        return "\n".join([f"{first} [{found}]", *more])

    def format(self, record: logging.LogRecord) -> str:
        first, *more = super().format(record).split("\n")
        rest = continued("\n".join(line.removeprefix(CONTINUED) for line in more))
        return f"{printable(first)}\n{rest}" if more else printable(first)


class JsonFormatter(logging.Formatter):
    """Writes each record as one line of JSON, for programs that collect logs."""

    def format(self, record: logging.LogRecord) -> str:
        value: dict[str, Any] = {
            "time": _time_of(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields_of(record),
        }
        if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
            record.exc_text = exception_text(record)
        if record.exc_text:
            lines = record.exc_text.split("\n")
            value["traceback"] = "\n".join(line.removeprefix(CONTINUED) for line in lines)
        return json.dumps(value, default=str)


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields of the task that the record belongs to; none if it belongs to no task."""
    note_task(record)
    found = {name: record.__dict__[name] for name in TASK_FIELDS if name in record.__dict__}
    return found if len(found) == len(TASK_FIELDS) else {}


def _time_of(record: logging.LogRecord) -> str:
    """Return date and time with the zone's offset: people compare logs of several machines."""
    return datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")


# ---- The garbage collector.


#: Python collects its youngest objects after this many new ones. Its own default is 700.
_THRESHOLD = 10_000
#: The same number for a command that reads much and ends soon.
_THRESHOLD_OF_A_READER = 50_000


@contextmanager
def spared_imports() -> Iterator[None]:
    """Exclude the objects that imports in this block make from garbage collection, now and later.
    Collections took an eighth of the time of imports."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def spare_what_stays() -> None:
    """Exclude all present objects from garbage collection, once all modules are imported. Classes
    and functions stay anyway: looking at them took a tenth of a worker's time with small tasks."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_THRESHOLD, *gc.get_threshold()[1:])


def spare_a_reader() -> None:
    """Collect garbage less often, in a command that decodes much, keeps little, and ends soon:
    collections took as long as the decoding."""
    gc.set_threshold(_THRESHOLD_OF_A_READER, *gc.get_threshold()[1:])
