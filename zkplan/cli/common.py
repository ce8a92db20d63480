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
from ..plan import Plan
from ..transport.addresses import require_data
from .terminal import PrintableFormatter, printable

#: Rows of a table that are aligned together.
ROWS_ALIGNED = 1000

F = TypeVar("F", bound=Callable[..., Any])

hosts_option = click.option(
    "--hosts",
    envvar="ZKPLAN_HOSTS",
    default=DEFAULT_HOSTS,
    show_default=True,
    show_envvar=True,
    help="ZooKeeper servers, host:port separated by commas; a chroot may follow. "
    "embedded:FOLDER starts a server in this process, or uses the one that serves the folder.",
)
root_option = click.option(
    "--root",
    envvar="ZKPLAN_ROOT",
    default=DEFAULT_ROOT,
    show_default=True,
    show_envvar=True,
    help="The znode below which plans and workers live.",
)
secret_option = click.option(
    "--secret",
    envvar="ZKPLAN_SECRET",
    default="",
    show_envvar=True,
    help="Sign payloads with this, and accept only what was signed with it.",
)
timeout_option = click.option(
    "--connect-timeout",
    envvar="ZKPLAN_CONNECT_TIMEOUT",
    type=click.FloatRange(0, 3600, min_open=True),
    default=10.0,
    show_default=True,
    show_envvar=True,
    help="Seconds to wait for a connection.",
)
output_option = click.option(
    "-o",
    "--output",
    envvar="ZKPLAN_OUTPUT",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    show_envvar=True,
    help="How data is printed.",
)


def connection_options(function: F) -> F:
    """--hosts, --root, --secret, --connect-timeout: enough for `open_client`."""
    for option in (timeout_option, secret_option, root_option, hosts_option):
        function = option(function)
    return function


def open_client(
    hosts: str,
    root: str,
    secret: str,
    connect_timeout: float,
    *,
    creates: bool = False,
    **options: Any,
) -> Client:
    """A client for a command; only one that `creates` makes an embedded folder that is not there.

    Raises ZkplanError for such a folder, which is mistyped in most cases, and what `connect` does.
    """
    log_to_stderr()
    if not creates:
        require_data(hosts)
    return connect(hosts, root, secret=secret, connect_timeout=connect_timeout, **options)


def label_of(plan: Plan) -> str:
    """Path and name: a bare number or path does not show that it is the wrong plan.

    Printable and one line, as the cells of a table: whoever writes the tree can give any name.
    """
    try:
        return _cell(f"{plan.path} ({plan.name})" if plan.name else plan.path)
    except PayloadUndecodable:  # its record is damaged, or of a later format
        return plan.path


def log_to_stderr(level: int = logging.INFO) -> None:
    """zkplan's own events; of kazoo only what is an error, its reconnects are told by zkplan."""
    handler = logging.StreamHandler()
    handler.setFormatter(
        PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S")
    )
    logging.basicConfig(level=level, handlers=[handler])
    for name in ("kazoo", "zkplan.kazoo"):
        logging.getLogger(name).setLevel(logging.ERROR)


def print_rows(rows: Iterable[dict[str, Any]], output: str, columns: Sequence[str]) -> int:
    """Rows as an aligned table or as a JSON array, as they come; gives how many."""
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
    # Not all rows are known at once: they are aligned with those around and before them.
    while lines := list(islice(table, ROWS_ALIGNED)):
        number += len(lines)
        widths = [
            max(width, *map(len, cells)) for width, *cells in zip(widths, *lines, strict=True)
        ]
        for line in lines:
            padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            click.echo("  ".join(padded).rstrip())
    return number - 1


def print_rest(left_out: int, output: str) -> None:
    """Say how many rows a limit has left out, if any; never within JSON."""
    if left_out > 0:
        click.echo(f"… and {left_out:,} more", err=output == "json")


def print_facts(facts: dict[str, Any], output: str) -> None:
    """One thing: a JSON object, or a line per fact."""
    if output == "json":
        click.echo(json.dumps(facts, indent=2, default=str))
        return
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        lines = _text(value).splitlines() or [""]
        click.echo(f"{name.ljust(width)}  {lines[0]}".rstrip())
        for line in lines[1:]:
            click.echo(f"{' ' * width}  {line}")


def _cell(value: Any) -> str:
    """A row is one line."""
    return _text(value).replace("\n", "\\n")


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return printable(str(value))
