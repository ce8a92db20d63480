"""All commands of zkplan, for tests that demand something of each of them."""

from __future__ import annotations

from collections.abc import Iterator

import click


def commands(command: click.Command, path: str) -> Iterator[str]:
    """All commands that can be run, as people type them."""
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, f"{path} {name}")
