"""AES-256-GCM: what is sealed is encrypted, too. The place is its additional data. An extra."""

from __future__ import annotations

import os

from .extra import missing

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
except ImportError:
    raise missing() from None

_NONCE = 12


class Encrypting:
    """See `ring.Seal`. Nonces are random: one key, which is a root's own, may seal 2^32 records."""

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
