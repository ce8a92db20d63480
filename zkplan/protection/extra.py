"""The package `cryptography`, which only two kinds of keys need."""

from __future__ import annotations

from ..errors import InvalidSettings


def missing(what: str) -> InvalidSettings:
    """The error of a key that needs the extra, where that is not installed."""
    return InvalidSettings(
        f"a key of the kind {what} needs the package cryptography: "
        "python -m pip install 'zkplan[crypto]'"
    )
