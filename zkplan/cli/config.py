"""`zkplan config show`: how to connect, and where each value comes from."""

from __future__ import annotations

from typing import Any

import click

from ..settings import Settings
from ..settings.fields import FIELDS, Field
from .common import all_connection_options, output_option, print_rows

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
    names. The variables ZKPLAN_… go before a profile, and options before both.
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
    elif isinstance(value, tuple):
        value = list(value) if output == "json" else ", ".join(value)
    elif isinstance(value, bool) and output != "json":
        value = "true" if value else "false"
    origin = settings.origins.get(field.attribute, "default")
    return {"field": field.name, "value": value, "origin": origin}
