"""Import the function that MODULE:FUNCTION names."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from ..basics.exceptions import summary_of


def function_at(path: str) -> Callable[..., Any]:
    """Raises ValueError, whose text says why there is none."""
    module, separator, name = path.partition(":")
    if not (separator and module and name):
        raise ValueError(f"it is a text MODULE:FUNCTION, unlike {path!r:.100}")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # the module runs, and may raise anything
        raise ValueError(f"{path} cannot be imported: {summary_of(error)}") from error
    if not callable(found):
        raise ValueError(f"{path} is no function but {found!r:.100}")
    function: Callable[..., Any] = found
    return function
