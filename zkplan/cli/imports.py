"""The folders that `zkplan worker` and `zkplan run` import functions from, and kinds of tasks."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import click

from ..basics.exceptions import summary_of
from ..basics.loaded_code import note_imports
from ..serialization.kinds import registered
from ..settings import Settings
from ..settings.settings import JSON

import_path_option = click.option(
    "--import-path",
    "import_path",
    multiple=True,
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False),
    help="A folder to import functions from. Repeat the option for others. With serializer json "
    "the current folder counts only if it is named so (--import-path .).",
)


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
