"""Shared parts of the commands: options, times, questions, the client, tables, JSON and logs."""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import wraps
from itertools import chain, islice
from typing import Any, TypeVar

import click

from ..basics.settings import Settings, resolve, take_handed
from ..basics.settings_fields import BY_ATTRIBUTE, FIELDS, Field
from ..basics.text import date_time, one_line, printable, without_login
from ..client import Client, connect_with
from ..errors import PayloadUndecodable, ZkplanError
from ..plan import Plan
from ..transport.addresses import require_data
from ..views.root_access import hint_at_root, require_root
from ..views.why_facts import Why
from . import EXIT_USAGE, JsonFormatter, PrintableFormatter

F = TypeVar("F", bound=Callable[..., Any])

# ---- Times that a user types.


_OF_DAY = re.compile(r"\d\d:\d\d(:\d\d)?")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
MOMENT = (
    "TIME is an age (90s, 10m, 12h), a time of day (03:12, the last one on the local clock), or a "
    "date and time (2026-11-25T03:12, with or without a zone)."
)


def seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Read the value of an option as seconds. Raises BadParameter."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhdw]?)", value.strip())
    if found is None:
        raise click.BadParameter(
            f"{value!r} is not a time: write 90s, 30m, 12h, 7d or 2w", ctx, param
        )
    return float(found[1]) * _SECONDS[found[2]]


def moment(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Read the value of an option as a moment, in seconds since 1970. Raises BadParameter."""
    if value is None:
        return None
    try:
        if _OF_DAY.fullmatch(value):
            now = datetime.now()
            at = datetime.fromisoformat(f"{now.date()}T{value}")
            return (at if at <= now else at - timedelta(days=1)).timestamp()
        return datetime.fromisoformat(value).timestamp()
    except ValueError:
        ago = seconds(ctx, param, value)
        return None if ago is None else time.time() - ago


# ---- Arguments and options.


plan_argument = click.argument("plan", metavar="PLAN")
task_argument = click.argument("task", metavar="TASK")


def option(
    names: str, kind: Any, default: Any, text: str, prefix: str = "ZKPLAN_", **more: Any
) -> Callable[[F], F]:
    """Return an option. Its environment variable is `prefix` and the long name of the option."""
    long = next(name for name in names.split() if name.startswith("--"))
    variable = prefix + long[2:].replace("-", "_").upper()
    given = {"type": kind, "default": default, "envvar": variable, "show_envvar": True} | more
    return click.option(*names.split(), help=text, **given)


output_option = option(
    "-o --output", click.Choice(["table", "json"]), "table", "Format of the output."
)
wait_timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(0),
    help="Maximum seconds to wait. If the plan can still go on then, the exit code is 4.",
)
yes_option = click.option(
    "--yes", is_flag=True, help="Do not ask for confirmation. Required without a terminal."
)
_log_format = option(
    "--log-format",
    click.Choice(["text", "json"]),
    "text",
    "Format of the log: lines for people, or one JSON object a line.",
)
_log_level = option(
    "--log-level",
    click.Choice(["debug", "info", "warning", "error"]),
    "info",
    "The lowest level that is logged.",
)


def log_options(function: F) -> F:
    """Add the log options to a command that runs until a signal stops it."""

    @wraps(function)
    def with_logging(*args: Any, log_format: str, log_level: str, **given: Any) -> Any:
        log_to_stderr(getattr(logging, log_level.upper()), log_format == "json")
        return function(*args, **given)

    made: Any = _log_format(_log_level(with_logging))
    given: F = made
    return given


def connection_options(function: F) -> F:
    """Add the connection options; `function` gets `settings`, merged from all sources.

    A group that runs a subcommand gets default settings: the subcommand reads its own options.
    """
    return _with_settings(function)


def result_options(function: F) -> F:
    """Add the connection options, and the format in which the command prints its result."""
    return output_option(connection_options(function))


def optional_connection_options(function: F) -> F:
    """Add the connection options to a command that starts its own server unless one is named.

    The default profile of a file does not name one.
    """
    return _with_settings(function, takes_default=False)


def all_connection_options(function: F) -> F:
    """Add the connection options; the help lists the options for login and TLS as well."""
    return _with_settings(function, lists_all=True)


def connection_options_of_roots(function: F) -> F:
    """Add the connection options with a repeatable --root; `settings` is a list, one per root."""
    return _with_settings(function, many_roots=True)


def _with_settings(
    function: F,
    takes_default: bool = True,
    lists_all: bool = False,
    many_roots: bool = False,
) -> F:
    @wraps(function)
    def with_settings(*args: Any, profile: str | None, **given: Any) -> Any:
        roots = (given.pop("root") or [None]) if many_roots else []
        # click gives an empty tuple for a repeatable option that is not given.
        options = {name: given.pop(name) or None for name in BY_ATTRIBUTE if given.get(name) == ()}
        options |= {name: given.pop(name) for name in BY_ATTRIBUTE if name in given}
        ctx = click.get_current_context()
        if isinstance(ctx.command, click.Group) and ctx.invoked_subcommand is not None:
            return function(*args, settings=Settings(), **given)

        def resolved(options: dict[str, Any]) -> Settings:
            return resolve(
                options, profile, takes_default=takes_default, as_options=True, warn=_warn
            )

        if many_roots:
            settings = [resolved({**options, "root": root}) for root in dict.fromkeys(roots)]
            return function(*args, settings=settings, **given)
        return function(*args, settings=take_handed() or resolved(options), **given)

    made: Any = with_settings
    for field in reversed(FIELDS):
        if field.has_option:
            made = setting_option(
                field.attribute,
                # The help of most commands leaves out the fields of tables (login.…, tls.…).
                hidden="." in field.name and not lists_all,
                multiple=field.name == "secret-files" or (many_roots and field.name == "root"),
            )(made)
    given: F = _profile_option(made)
    return given


_profile_option = click.option(
    "--profile",
    metavar="NAME",
    envvar="ZKPLAN_PROFILE",
    show_envvar=True,
    help="A named set of connection settings. Options on the command line override it. For the "
    "options for login and TLS see `zkplan config show --help`.",
)


def setting_option(attribute: str, **more: Any) -> Callable[[F], F]:
    """Return the option of a field of Settings, as the table of settings describes it."""
    field = BY_ATTRIBUTE[attribute]
    name, notes = field.option, [f"env var: {field.variable}"]
    if isinstance(field.default, bool):
        name += f"/--no-{name[2:]}" if field.default else ""
        more |= {"is_flag": True, "type": bool}
    else:
        more = {"type": str, "metavar": field.kind.metavar} | more
        notes += [f"default: {_default(field)}"] if field.default else []
    return click.option(
        name,
        attribute,
        default=None,
        help=f"{field.text} [{'; '.join(notes)}]",
        # `resolve` reads the environment itself, to know the origin of each value.
        show_envvar=False,
        **more,
    )


def _default(field: Field) -> str:
    if field.kind.metavar == "SIZE":
        return f"{field.default // 1024}KiB"
    return f"{field.default:g}" if isinstance(field.default, float) else field.default


def _warn(text: str) -> None:
    click.echo(f"warning: {printable(text)}", err=True)


# ---- The client of a command.


def open_client(
    settings: Settings,
    *,
    creates: bool = False,
    needs_root: bool = True,
    patience: float = 30.0,
) -> Client:
    """Open a client for a command.

    Only a command that `creates` something may create the folder of an embedded server, and the
    root. For other commands a missing folder or root is most likely a typing error, so they raise
    ZkplanError. A command that waits for the root passes needs_root=False. Also raises the errors
    of `connect`.
    """
    log_to_stderr()
    if not creates:
        require_data(settings.hosts)
    hosts = printable(without_login(settings.hosts))
    with _reported_if_slow(hosts):
        client = connect_with(settings, patience=patience)
    try:
        if needs_root and not creates:
            require_root(client, hosts)
    except BaseException:
        client.close()
        raise
    return client


@contextmanager
def _reported_if_slow(hosts: str) -> Iterator[None]:
    """Print the address if connecting takes long: the command waits for a silent server."""
    timer = threading.Timer(_SILENT_S, click.echo, [f"connecting to {hosts} …"], {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


#: Seconds without an answer until a command prints the address.
_SILENT_S = 1.0


def confirm(
    what: str, *, yes: bool, advice: str = "", show: Callable[[], Any] | None = None
) -> None:
    """Ask whether to do `what`, which cannot be undone. Exits with 2 if the user declines.

    `show` prints the affected items before the question. Raises UsageError if there is neither a
    terminal nor `yes`.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"there is no terminal to ask whether to {what}: {advice}confirm with --yes"
        )
    if show is not None:
        show()
    if not click.confirm(f"{what[0].upper()}{what[1:]}?", err=True):
        click.echo("nothing was changed", err=True)
        raise SystemExit(EXIT_USAGE)


def log_to_stderr(level: int = logging.INFO, as_json: bool = False) -> None:
    """Log zkplan's own events, and only errors of kazoo: zkplan reports reconnects itself."""
    handler = logging.StreamHandler()
    text = PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if as_json else text)
    logging.basicConfig(level=level, handlers=[handler])
    for name in ("kazoo", "zkplan.kazoo"):
        logging.getLogger(name).setLevel(logging.ERROR)


# ---- Tables and JSON.


#: How many rows of a table are aligned together.
ROWS_ALIGNED = 1000


def with_dates(row: dict[str, Any], output: str, *names: str) -> dict[str, Any]:
    """Return the row with these fields, in seconds since 1970, as dates. None stays None."""
    dates = {
        name: date_time(row[name], output != "json") for name in names if row.get(name) is not None
    }
    return row | dates


def label_of(plan: Plan) -> str:
    """Return path and name of a plan: by the name, a user notices a mistyped number.

    The text is printable and one line: anyone who may write the tree can choose the name.
    """
    try:
        return _cell(f"{plan.path} ({plan.name})" if plan.name else plan.path)
    except PayloadUndecodable:  # its record is damaged, or of another format
        return plan.path


def print_rows(rows: Iterable[dict[str, Any]], output: str, columns: Sequence[str]) -> int:
    """Print rows as they arrive, as an aligned table or a JSON array. Returns their number."""
    return (_print_json if output == "json" else _print_table)(iter(rows), columns)


def _print_json(rows: Iterator[dict[str, Any]], _: Sequence[str]) -> int:
    number = 0
    for number, row in enumerate(rows, 1):
        text = json.dumps(row, indent=2, default=str).replace("\n", "\n  ")
        click.echo(f"{'[' if number == 1 else ','}\n  {text}", nl=False)
    click.echo("\n]" if number else "[]")
    return number


def _print_table(rows: Iterator[dict[str, Any]], columns: Sequence[str]) -> int:
    body = ([_cell(row.get(column)) for column in columns] for row in rows)
    table = chain([list(columns)], body)
    number, widths = 0, [0] * len(columns)
    # Not all rows are known at once, so each group is aligned with the rows before it.
    while lines := list(islice(table, ROWS_ALIGNED)):
        number += len(lines)
        widths = [
            max(width, *map(len, cells)) for width, *cells in zip(widths, *lines, strict=True)
        ]
        for line in lines:
            padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            click.echo("  ".join(padded).rstrip())
    return number - 1


def report_empty(what: str, client: Client, hosts: str) -> None:
    """Print that a list is empty. Raises ZkplanError if the root is not one of zkplan: a mistyped
    root must not look like one in use."""
    hint = hint_at_root(client)
    message = f"no {what} under {client.root} of {hosts}{hint}"
    if hint:
        raise ZkplanError(message)
    click.echo(message, err=True)


def report_gaps(gaps: Iterable[str]) -> None:
    """Print what is missing in the history of a plan."""
    for gap in gaps:
        click.echo(f"the history is not whole: {gap}", err=True)


def print_rest(left_out: int, output: str) -> None:
    """Print how many rows a limit has left out, if any; with JSON output, to stderr."""
    if left_out > 0:
        click.echo(f"… and {left_out:,} more", err=output == "json")


def print_facts(facts: dict[str, Any], output: str) -> None:
    """Print one object, as JSON or with one line per fact."""
    if output == "json":
        click.echo(json.dumps(facts, indent=2, default=str))
        return
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        lines = _text(value).splitlines() or [""]
        click.echo(f"{name.ljust(width)}  {lines[0]}".rstrip())
        for line in lines[1:]:
            click.echo(f"{' ' * width}  {line}")


def print_why(found: Why, output: str) -> None:
    """Print the causes: as JSON with all fields, or one line each with the advice below it."""
    if output == "json":
        causes = [with_dates(cause._asdict(), output, "when") for cause in found.causes]
        print_facts(found._asdict() | {"causes": causes}, output)
        return
    click.echo(f"{found.path}: {found.state}")
    for cause in found.causes:
        click.echo(f"- {printable(cause.text)}")
        if cause.advice:
            click.echo(f"  {printable(cause.advice)}")


def _cell(value: Any) -> str:
    """Escape line ends and tabs, because a row is one line."""
    return one_line(_text(value))


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return printable(str(value))
