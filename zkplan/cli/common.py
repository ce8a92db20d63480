"""What the commands share: options, output, logs."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from itertools import chain, islice
from typing import Any, TypeVar

import click

from ..basics.text import date_time, one_line, without_login
from ..client import Client, connect_with
from ..errors import PayloadUndecodable, ZkplanError
from ..inspection.roots import hint_at_root, require_root
from ..inspection.view import Why
from ..plan import Plan
from ..settings import Settings
from ..settings.fields import FIELDS, Field
from ..settings.handing import take_handed
from ..settings.resolve import resolve
from ..transport.addresses import require_data
from .terminal import JsonFormatter, PrintableFormatter, printable

#: Rows of a table that are aligned together.
ROWS_ALIGNED = 1000
#: A command says what it connects to after so many seconds without an answer.
_SILENT_S = 1.0

F = TypeVar("F", bound=Callable[..., Any])


def option(
    names: str, kind: Any, default: Any, text: str, prefix: str = "ZKPLAN_", **more: Any
) -> Callable[[F], F]:
    """An option whose variable in the environment is its long name behind `prefix`."""
    long = next(name for name in names.split() if name.startswith("--"))
    variable = prefix + long[2:].replace("-", "_").upper()
    given = {"type": kind, "default": default, "envvar": variable, "show_envvar": True} | more
    return click.option(*names.split(), help=text, **given)


wait_timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(0),
    default=None,
    help="Seconds to wait at most. The exit code is 4 if the plan can still go on then.",
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
    "The least level that is logged.",
)


def log_options(function: F) -> F:
    """The options of a command that runs until it is told to stop, and logs meanwhile."""

    @wraps(function)
    def logging_so(*args: Any, log_format: str, log_level: str, **given: Any) -> Any:
        log_to_stderr(getattr(logging, log_level.upper()), log_format == "json")
        return function(*args, **given)

    made: Any = _log_format(_log_level(logging_so))
    given: F = made
    return given


output_option = option(
    "-o --output", click.Choice(["table", "json"]), "table", "Format of the output."
)


def connection_options(function: F) -> F:
    """The options that say how to connect; the function gets `settings`, merged from all sources.

    See `zkplan.settings`. Of a group with a subcommand, the subcommand has the settings.
    """
    return _with_settings(function, takes_default=True)


def optional_connection_options(function: F) -> F:
    """The same for a command that starts a server of its own, unless one is named.

    The default profile of a file does not count as named.
    """
    return _with_settings(function, takes_default=False)


def all_connection_options(function: F) -> F:
    """As `connection_options`, and the help tells of those for login and TLS as well."""
    return _with_settings(function, takes_default=True, tells_all=True)


def connection_options_of_roots(function: F) -> F:
    """As `connection_options`, with --root any number of times: `settings` is a list, one for each
    root."""
    return _with_settings(function, takes_default=True, many_roots=True)


def _with_settings(
    function: F, takes_default: bool, tells_all: bool = False, many_roots: bool = False
) -> F:
    @wraps(function)
    def with_settings(*args: Any, **given: Any) -> Any:
        roots = (given.pop("root") or [None]) if many_roots else []
        options = {name: given.pop(name) for name in _NAMES if name in given}
        for name in ("secret_files", "queue"):  # none given is no choice
            options[name] = options.get(name) or None
        profile = given.pop("profile")
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
            is_many = field.name == "secret-files" or (many_roots and field.name == "root")
            made = _option_of(field, field.is_common or tells_all, is_many)(made)
    given: F = _profile_option(made)
    return given


_NAMES = [field.attribute for field in FIELDS]
_profile_option = click.option(
    "--profile",
    metavar="NAME",
    envvar="ZKPLAN_PROFILE",
    show_envvar=True,
    help="A named set of connection settings. Options on the command line override it. For the "
    "options for login and TLS see `zkplan config show --help`.",
)


def _option_of(field: Field, is_told: bool, is_many: bool) -> Callable[[F], F]:
    default = getattr(Settings, field.attribute, None)
    told = f"{default:g}" if isinstance(default, float) else default
    is_flag = isinstance(default, bool)
    notes = [f"env var: {field.variable}", *([f"default: {told}"] if told and not is_flag else [])]
    name = f"{field.option}/--no-{field.option[2:]}" if default is True else field.option
    more: dict[str, Any] = {"is_flag": True, "type": bool} if is_flag else {}
    if not is_flag:
        more = {"type": str, "metavar": field.metavar}
    return click.option(
        name,
        field.attribute,
        default=None,
        multiple=is_many,
        help=f"{field.text} [{'; '.join(notes)}]",
        hidden=not is_told,
        # The settings read the environment by themselves, to tell where a value came from.
        show_envvar=False,
        **more,
    )


def _warn(text: str) -> None:
    click.echo(f"warning: {printable(text)}", err=True)


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
    ZkplanError; a root may be missing for those that wait for it (`needs_root` is False). Raises
    what `connect` raises, too.
    """
    log_to_stderr()
    if not creates:
        require_data(settings.hosts)
    with told_if_slow(settings.hosts):
        client = connect_with(settings, patience=patience)
    try:
        if needs_root and not creates:
            require_root(client, printable(without_login(settings.hosts)))
    except BaseException:
        client.close()
        raise
    return client


@contextmanager
def told_if_slow(hosts: str) -> Iterator[None]:
    """Say what is connected to, if that takes longer than a moment: a server that does not answer
    is waited for."""
    told = f"connecting to {printable(without_login(hosts))} …"
    timer = threading.Timer(_SILENT_S, click.echo, [told], {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def label_of(plan: Plan) -> str:
    """The path and the name of a plan: the name shows a user who typed a wrong number.

    The text is printable and one line, as a table cell is: whoever writes the tree chooses the
    name.
    """
    try:
        return _cell(f"{plan.path} ({plan.name})" if plan.name else plan.path)
    except PayloadUndecodable:  # its record is damaged, or of another format
        return plan.path


def log_to_stderr(level: int = logging.INFO, as_json: bool = False) -> None:
    """Log zkplan's own events, and only errors of kazoo: zkplan reports reconnects itself."""
    handler = logging.StreamHandler()
    text = PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if as_json else text)
    logging.basicConfig(level=level, handlers=[handler])
    for name in ("kazoo", "zkplan.kazoo"):
        logging.getLogger(name).setLevel(logging.ERROR)


def print_rows(rows: Iterable[dict[str, Any]], output: str, columns: Sequence[str]) -> int:
    """Print rows as an aligned table or as a JSON array while they arrive; returns their number."""
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


def tell_none(what: str, client: Client, hosts: str) -> None:
    """Say that a list is empty. Where this is no root of zkplan, the command ends with an error: a
    mistyped root must not look like one that is in use."""
    hint = hint_at_root(client)
    told = f"no {what} under {client.root} of {hosts}{hint}"
    if hint:
        raise ZkplanError(told)
    click.echo(told, err=True)


def print_rest(left_out: int, output: str) -> None:
    """Print how many rows a limit has left out, if any; JSON output is left as it is."""
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
    """Print the causes: as JSON with all of their fields, or one line each and below it what to
    do."""
    if output == "json":
        causes = [
            cause._asdict() | {"when": cause.when and date_time(cause.when, people=False)}
            for cause in found.causes
        ]
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
