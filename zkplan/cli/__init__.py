"""The command line: one thin file per command; data on stdout, logs and progress on stderr.

Exit codes: 0 ok, 1 a plan failed, 2 usage, 3 ZooKeeper unreachable or restored,
4 timed out, 130 interrupted.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import NoReturn

import click

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
from ..log import continued
from ..processes.garbage import spared_imports
from .terminal import printable

_SETTINGS = {
    "auto_envvar_prefix": "ZKPLAN",
    "help_option_names": ["-h", "--help"],
    "show_default": True,
}
#: Command name to module below this package; loaded only when asked for.
COMMANDS = (
    *("server", "worker", "plan", "task", "queue", "limit", "top", "schedule", "run", "root"),
    *("serve", "config", "metrics", "stress", "demo"),
)
EXIT_FAILED, EXIT_USAGE, EXIT_UNREACHABLE, EXIT_TIMED_OUT = 1, 2, 3, 4
#: What a shell reports for Ctrl-C.
EXIT_INTERRUPTED = 130


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = f"{__name__}.{name}"
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
    """The exit code for an error."""
    if isinstance(error, ZooKeeperUnavailable | ServerRolledBack):
        return EXIT_UNREACHABLE  # run again, the command may succeed
    if isinstance(error, WaitTimeout):
        return EXIT_TIMED_OUT
    if isinstance(error, PlanFailed | PlanCancelled | PlanStuck | TaskFailed):
        return EXIT_FAILED
    return EXIT_USAGE


def end(message: str, code: int) -> NoReturn:
    """Say why a command ends, on stderr, and end it with this exit code."""
    first, *more = message.split("\n")
    # Part of a message may come from the tree, so no further line may look like one of its own.
    rest = [continued("\n".join(more))] if more else []
    click.echo("\n".join([f"zkplan: {printable(first)}", *rest]), err=True)
    sys.exit(code)


def main(args: list[str] | None = None) -> NoReturn:
    """The entry point: every error becomes one line on stderr and an exit code."""
    # Not click's standalone mode: there Ctrl-C ends with 1, which means that a plan failed.
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
        # The reader has closed stdout, as `head` does. Python would complain again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)
    sys.exit(code if isinstance(code, int) else 0)
