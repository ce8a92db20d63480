"""What the commands share: options, output, logs."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from ..client import DEFAULT_HOSTS, Client, connect
from ..connection import DEFAULT_ROOT
from ..errors import PayloadUndecodable
from ..plan import Plan
from ..transport.addresses import require_data
from .terminal import PrintableFormatter, printable

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


def print_rows(rows: Sequence[dict[str, Any]], output: str, columns: Sequence[str]) -> None:
    """Rows as an aligned table or as a JSON array."""
    if output == "json":
        click.echo(json.dumps(list(rows), indent=2, default=str))
        return
    table = [list(columns), *([_cell(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[index]) for line in table) for index in range(len(columns))]
    for line in table:
        click.echo(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )


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
