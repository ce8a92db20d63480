"""The HTTP service of a root: plans, tasks, results, workers in any language, and the page."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .app import create_app
    from .entrance import Options
    from .parameters import Link
    from .tokens import Tokens, new_token

__all__ = ["Link", "Options", "Tokens", "create_app", "new_token"]
#: The module of each name: it is loaded when the name is first used.
_HOMES = {
    "create_app": "app",
    "Link": "parameters",
    "Options": "entrance",
    "Tokens": "tokens",
    "new_token": "tokens",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
