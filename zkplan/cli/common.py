"""What the commands share: options, durations, import paths, output and logs."""

from __future__ import annotations

import importlib
import json
import logging
import os
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
from ..basics.settings_fields import FIELDS, JSON, Field
from ..basics.text import date_time, one_line, printable, summary_of, without_login
from ..client import Client, connect_with
from ..errors import PayloadUndecodable, ZkplanError
from ..plan import Plan
from ..transport.addresses import require_data
from ..values.functions_by_name import AllowList, note_imports, registered
from ..views.root_access import hint_at_root, require_root
from ..views.why_facts import Why
from . import JsonFormatter, PrintableFormatter

_OF_DAY = re.compile(r"\d\d:\d\d(:\d\d)?")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """The callback of an option. Raises BadParameter."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhdw]?)", value.strip())
    if found is None:
        raise click.BadParameter(f"{value!r} is no time: write 90s, 30m, 12h, 7d or 2w", ctx, param)
    return float(found[1]) * _SECONDS[found[2]]


MOMENT = (
    "A time ago (90s, 10m, 12h), the last time that the clock here showed it (03:12), or a date "
    "and time (2026-11-25T03:12, also with a zone)."
)


def moment(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """The callback of an option: a moment in seconds since 1970. Raises BadParameter."""
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


# ---- Which functions a command may run: folders to import them from, and a list of those allowed.
#
# `zkplan worker` and `zkplan task replay` follow the same rules.


import_path_option = click.option(
    "--import-path",
    "import_path",
    multiple=True,
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False),
    help="A folder to import functions from. Repeat the option for others. With serializer json "
    "the current folder counts only if it is named so (--import-path .).",
)
allow_option = click.option(
    "--allow",
    multiple=True,
    metavar="MODULE:PATTERN",
    help="A function that may run with --serializer json, such as 'mypkg.tasks:*' (zkplan:shell: "
    "commands). Repeat the option for others.",
)
kinds_option = click.option(
    "--kinds",
    multiple=True,
    metavar="MODULE",
    help="Import this module and run the kinds of tasks that it has functions for, with "
    "@zkplan.kind. Repeat the option for others.",
)


def allowed_functions(
    settings: Settings, allow: Sequence[str], kinds: Sequence[str]
) -> AllowList | None:
    """The functions that may run; None with serializer pickle, which has no list.

    A wrong list is wrong usage: it is refused before anything starts.
    """
    if settings.serializer == JSON:
        return AllowList(allow, may_be_empty=bool(kinds))
    if allow:
        raise click.UsageError("--allow needs --serializer json: a pickle may call any function")
    return None


def set_import_path(settings: Settings, folders: Sequence[str]) -> None:
    """Import from `folders`, and with serializer pickle from the current folder as well."""
    here = os.getcwd()
    if settings.serializer != JSON:
        sys.path.insert(0, here)
    elif not getattr(sys.flags, "safe_path", False) and sys.path[:1] in ([""], [here]):
        del sys.path[0]  # `python -m zkplan` has put it there
    sys.path[:0] = [os.path.abspath(folder) for folder in folders]


def import_kinds(modules: Sequence[str]) -> None:
    """Import the modules whose functions run kinds of tasks. Raises click.UsageError."""
    for module in modules:
        before = registered()
        try:
            importlib.import_module(module)
        except Exception as error:  # the module runs, and may raise anything
            raise click.UsageError(
                f"--kinds {module} cannot be imported: {summary_of(error)}"
            ) from error
        if registered() == before:
            raise click.UsageError(f"--kinds {module} has no function with @zkplan.kind")
    note_imports()


# ---- What the commands share: options, output, logs.


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

    See `zkplan.basics.settings`. Of a group with a subcommand, the subcommand has the settings.
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
