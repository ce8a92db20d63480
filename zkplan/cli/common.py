"""What the commands share: options, output, logs."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, TypeVar

import click

from ..client import DEFAULT_HOSTS, Client, connect
from ..connection import DEFAULT_ROOT
from ..errors import PayloadUndecodable
from ..inspection.roots import hint_at_root
from ..inspection.view import Why
from ..plan import Plan
from ..text import date_time
from ..transport.addresses import require_data
from .terminal import PrintableFormatter, printable

#: Rows of a table that are aligned together.
ROWS_ALIGNED = 1000

F = TypeVar("F", bound=Callable[..., Any])


def option(
    names: str, kind: Any, default: Any, text: str, prefix: str = "ZKPLAN_", **more: Any
) -> Callable[[F], F]:
    """An option whose variable in the environment is its long name behind `prefix`."""
    long = next(name for name in names.split() if name.startswith("--"))
    variable = prefix + long[2:].replace("-", "_").upper()
    given = {"type": kind, "default": default, "envvar": variable, "show_envvar": True} | more
    return click.option(*names.split(), help=text, **given)


hosts_option = option(
    "--hosts",
    str,
    DEFAULT_HOSTS,
    "ZooKeeper servers as host:port, separated by commas; a chroot may follow. With "
    "embedded:FOLDER this process starts a server that keeps its data in FOLDER, or uses the "
    "server that already does.",
)
root_option = option("--root", str, DEFAULT_ROOT, "The znode below which plans and workers live.")
secret_option = option(
    "--secret",
    str,
    "",
    "Sign payloads with this secret, and accept only payloads signed with it.",
    show_default=False,
)
store_option = option(
    "--store",
    str,
    "",
    "Where large values lie: the URL of a folder that authors and workers reach, such as "
    "file:///FOLDER or s3://BUCKET/FOLDER.",
    show_default=False,
)
timeout_option = option(
    "--connect-timeout",
    click.FloatRange(0, 3600, min_open=True),
    10.0,
    "Seconds to wait for a connection.",
)
output_option = option(
    "-o --output", click.Choice(["table", "json"]), "table", "Format of the output."
)


def connection_options(function: F) -> F:
    """--hosts, --root, --secret, --store, --connect-timeout: enough for `open_client`."""
    for option in (timeout_option, store_option, secret_option, root_option, hosts_option):
        function = option(function)
    return function


def open_client(
    hosts: str,
    root: str,
    secret: str,
    store: str,
    connect_timeout: float,
    *,
    creates: bool = False,
    **options: Any,
) -> Client:
    """Open a client for a command.

    Only a command that `creates` something may create the folder of an embedded server. For other
    commands a missing folder is most likely a typing error, so they raise ZkplanError. Raises what
    `connect` raises, too.
    """
    log_to_stderr()
    if not creates:
        require_data(hosts)
    return connect(
        hosts, root, secret=secret, store=store, connect_timeout=connect_timeout, **options
    )


def label_of(plan: Plan) -> str:
    """The path and the name of a plan: the name shows a user who typed a wrong number.

    The text is printable and one line, as a table cell is: whoever writes the tree chooses the
    name.
    """
    try:
        return _cell(f"{plan.path} ({plan.name})" if plan.name else plan.path)
    except PayloadUndecodable:  # its record is damaged, or of a later format
        return plan.path


def log_to_stderr(level: int = logging.INFO) -> None:
    """Log zkplan's own events, and only errors of kazoo: zkplan reports reconnects itself."""
    handler = logging.StreamHandler()
    handler.setFormatter(
        PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S")
    )
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
    """Say that a list is empty, so that a mistyped root does not look like one that is in use."""
    click.echo(f"no {what} under {client.root} of {hosts}{hint_at_root(client)}", err=True)


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
    """Escape line ends, because a row is one line."""
    return _text(value).replace("\n", "\\n")


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return printable(str(value))
