"""`zkplan config show|check`: how to connect, where each value comes from, whether it works."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import click

from ..basics.text import without_login
from ..settings import Settings
from ..settings.fields import FIELDS, Field
from . import EXIT_FAILED
from .common import (
    all_connection_options,
    connection_options,
    log_to_stderr,
    output_option,
    print_rows,
)
from .terminal import printable

_MASK = "***"


@click.group()
def config() -> None:
    """Look at how zkplan connects: profiles, the environment and options, merged."""


@config.command()
@output_option
@all_connection_options
def show(output: str, settings: Settings) -> None:
    """Show the settings field by field, each with where it comes from. Secrets are masked.

    Profiles are in ~/.config/zkplan.toml and ./zkplan.toml, or in the file that ZKPLAN_CONFIG
    names. ./zkplan.toml may set only what is safe in a folder that comes from anywhere. The
    variables ZKPLAN_… go before a profile, and options before both.
    """
    rows = [_row(field, settings, output) for field in FIELDS if _is_shown(field, settings)]
    if output == "table":
        profile = settings.profile or "none"
        click.echo(f"profile: {profile}", err=True)
    print_rows(rows, output, ("field", "value", "origin"))


def _is_shown(field: Field, settings: Settings) -> bool:
    return field.attribute in settings.origins or bool(getattr(settings, field.attribute))


def _row(field: Field, settings: Settings, output: str) -> dict[str, Any]:
    value = getattr(settings, field.attribute)
    if field.is_secret and value:
        value = _MASK
    elif field.name in ("store", "hosts"):
        value = without_login(value)
    elif isinstance(value, tuple):
        value = list(value) if output == "json" else ", ".join(value)
    elif isinstance(value, bool) and output != "json":
        value = "true" if value else "false"
    origin = settings.origins.get(field.attribute, "default")
    return {"field": field.name, "value": value, "origin": origin}


@config.command()
@output_option
@connection_options
def check(output: str, settings: Settings) -> None:
    """Check the connection: servers, TLS, login, rights, others' rights, clock, latency, limits.

    Each finding says what to do. The command creates one znode, which ends with it, and changes
    nothing else. The exit code is 1 if there is a problem; a note is none.
    """
    from ..doctor import check as findings_of

    log_to_stderr(logging.ERROR)
    has_problem = False

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal has_problem
        for finding in findings_of(settings):
            has_problem = has_problem or finding.state == "problem"
            yield finding._asdict()

    if output == "json":
        print_rows(rows(), output, ())
    else:
        for row in rows():
            click.echo(printable(f"{row['state']:<7}  {row['check']}: {row['told']}"))
            if row["todo"]:
                click.echo(printable(f"         {row['todo']}"))
    if has_problem:
        raise SystemExit(EXIT_FAILED)
