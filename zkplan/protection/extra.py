"""The package `cryptography`, which only two kinds of keys need."""

from __future__ import annotations

from ..errors import InvalidSettings


def missing() -> InvalidSettings:
    """The error of keys that need the extra, where that is not installed."""
    return InvalidSettings(
        "keys of the kinds aes and ed25519 need the package cryptography: "
        "python -m pip install 'zkplan[crypto]'"
    )
