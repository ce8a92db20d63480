"""Encrypt with AES-256-GCM and sign with Ed25519. Needs the extra `crypto`: import it lazily."""

from __future__ import annotations

import os

from ..errors import InvalidSettings


def missing() -> InvalidSettings:
    """The error if the extra is not installed."""
    return InvalidSettings(
        "keys of the kinds aes and ed25519 need the package cryptography: "
        "python -m pip install 'zkplan[crypto]'"
    )


try:
    from cryptography.exceptions import InvalidSignature, InvalidTag
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
except ImportError:
    raise missing() from None

_NONCE, _SIGNATURE = 12, 64


class Encrypting:
    """See `Seal`. AES-256-GCM, with the place as additional data.

    Nonces are random, so one key (each root has its own) may seal 2^32 records.
    """

    kind = b"G"

    def __init__(self, key: bytes, uid: bytes) -> None:
        self._cipher, self._root = AESGCM(key), uid + b" "

    def seal(self, place: bytes, body: bytes) -> bytes:
        nonce = os.urandom(_NONCE)
        return nonce + self._cipher.encrypt(nonce, body, self._root + place)

    def open(self, place: bytes, sealed: bytes, at: int) -> bytes | None:
        body = at + _NONCE
        try:
            return self._cipher.decrypt(sealed[at:body], sealed[body:], self._root + place)
        except (InvalidTag, ValueError):
            return None


def public_of(private: bytes) -> bytes:
    """The public key of a private one."""
    key = Ed25519PrivateKey.from_private_bytes(private).public_key()
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw)


class Signing:
    """See `Seal`. Ed25519: the private key signs, the public one only opens."""

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
            raise InvalidSettings("a public key cannot seal")
        return self._private.sign(self._text(place, body)) + body

    def open(self, place: bytes, sealed: bytes, at: int) -> bytes | None:
        body = sealed[at + _SIGNATURE :]
        try:
            self._public.verify(sealed[at : at + _SIGNATURE], self._text(place, body))
        except InvalidSignature:
            return None
        return body
