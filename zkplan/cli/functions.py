"""The functions that a worker, `zkplan task replay` and `zkplan run` may run, and their import."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import click

from ..basics.settings import Settings
from ..basics.settings_fields import JSON
from ..basics.text import summary_of
from ..values.functions_by_name import AllowList, note_imports, registered
from .common import F

import_path_option = click.option(
    "--import-path",
    multiple=True,
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False),
    help="A folder to import functions from. Repeat the option for others. With serializer json "
    "the current folder counts only if you name it (--import-path .).",
)
_allow_option = click.option(
    "--allow",
    multiple=True,
    metavar="MODULE:PATTERN",
    help="Functions that may run with --serializer json, such as 'mypkg.tasks:*'; zkplan:shell "
    "allows commands. Repeat the option for others.",
)
_kinds_option = click.option(
    "--kinds",
    multiple=True,
    metavar="MODULE",
    help="Import this module, and run the kinds of tasks for which it has a function with "
    "@zkplan.kind. Repeat the option for others.",
)


def function_options(function: F) -> F:
    """Add the options for the functions that a command may run, and where to import them from."""
    return import_path_option(_allow_option(_kinds_option(function)))


def allowed_functions(
    settings: Settings, allow: Sequence[str], kinds: Sequence[str]
) -> AllowList | None:
    """Return the functions that may run; None with serializer pickle, which has no list.

    Raises UsageError for a wrong list, before anything starts.
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
    """Import the modules whose functions run kinds of tasks. Raises UsageError."""
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
