"""Ed25519: who has the private key signs, who has the public one only reads. An extra."""

from __future__ import annotations

from ..errors import InvalidSettings
from .extra import missing

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
except ImportError:
    raise missing() from None

_SIGNATURE = 64


def public_of(private: bytes) -> bytes:
    """The public key of a private one."""
    key = Ed25519PrivateKey.from_private_bytes(private).public_key()
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw)


class Signing:
    """See `ring.Seal`. Without the private key it only opens."""

    kind = b"S"

    def __init__(self, key: bytes, uid: bytes, *, is_private: bool) -> None:
        self._root = uid + b" "
        self._private = Ed25519PrivateKey.from_private_bytes(key) if is_private else None
        self._public = (
            self._private.public_key()
            if self._private is not None
            else Ed25519PublicKey.from_public_bytes(key)
        )

    def _text(self, place: bytes, body: bytes) -> bytes:
        return b"%b%b\0%b" % (self._root, place, body)

    def seal(self, place: bytes, body: bytes) -> bytes:
        if self._private is None:
            raise InvalidSettings("a public key seals nothing")
        return self._private.sign(self._text(place, body)) + body

    def open(self, place: bytes, sealed: bytes, at: int) -> bytes | None:
        body = sealed[at + _SIGNATURE :]
        try:
            self._public.verify(sealed[at : at + _SIGNATURE], self._text(place, body))
        except InvalidSignature:
            return None
        return body
