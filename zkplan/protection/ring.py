"""Seal bytes for a place with the first of some keys, and open them with whichever sealed them.

    z3  KIND  TAG  PROOF  BODY

KIND is one letter, TAG names the key. The proof is over the place and the body: 16 bytes of keyed
BLAKE2b (`H`), or 64 bytes of Ed25519 (`S`); with AES-GCM (`G`) it is the nonce of 12 bytes, and the
body is encrypted and followed by 16 bytes that prove it.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from hmac import compare_digest
from typing import Protocol

from ..errors import InvalidSettings, PayloadRefused, PayloadUndecodable
from ..protocol import formats
from .keys import AES, SECRET, SIGNING, TAG_BYTES, Key

MAGIC = formats.SEALED
_HEAD = len(MAGIC) + 1 + TAG_BYTES
_PROOF, _PERSON = 16, b"zkplan.seal.z3"
NOT_FOR_HERE = "it was not sealed for this place: it was changed, or moved here from elsewhere"


class Seal(Protocol):
    """One key of one root at work. `kind` is the letter of its algorithm."""

    kind: bytes

    def seal(self, place: bytes, body: bytes) -> bytes: ...

    def open(self, place: bytes, sealed: bytes, at: int) -> bytes | None:
        """The body of what is sealed from `at` on, which is behind the tag; None where it was not
        sealed so, or not for here."""


class _Hash:
    """Keyed BLAKE2b. No place holds a null byte, so a place and a body have one text together."""

    kind = b"H"

    def __init__(self, key: bytes, uid: bytes) -> None:
        #: Has taken in the key. A copy of it costs a third of what taking in the key costs.
        self._keyed = blake2b(uid + b" ", digest_size=_PROOF, key=key, person=_PERSON)

    def _proof(self, place: bytes, body: bytes) -> bytes:
        proof = self._keyed.copy()
        proof.update(place + b"\0" + body)
        return proof.digest()

    def seal(self, place: bytes, body: bytes) -> bytes:
        return self._proof(place, body) + body

    def open(self, place: bytes, sealed: bytes, at: int) -> bytes | None:
        body = sealed[at + _PROOF :]
        return body if compare_digest(sealed[at : at + _PROOF], self._proof(place, body)) else None


class Ring:
    """The keys of one root. `uid` tells this root from all others: keys are derived from it."""

    def __init__(self, keys: Sequence[Key], uid: bytes) -> None:
        made = [(key.tag, _seal_of(key, uid)) for key in keys]
        #: By what stands before its proofs: its kind and its tag.
        self._seals = {MAGIC + seal.kind + tag: seal for tag, seal in made}
        self._tags = {tag for tag, _ in made}
        self._head = next(iter(self._seals))
        self._sealing = made[0][1] if keys[0].can_seal else None
        self.uid = uid

    def seal(self, place: bytes, body: bytes) -> bytes:
        """Raises InvalidSettings if the first key can only read."""
        if self._sealing is None:
            raise InvalidSettings(
                "the key of this client can only read (ed25519-public): it writes nothing under "
                "this root. Give the file with the key that signs (secret-files)"
            )
        return self._head + self._sealing.seal(place, body)

    def open(self, place: bytes, sealed: bytes) -> bytes:
        """The body. Nothing of it is looked at before its proof fits.

        Raises PayloadRefused if it was not sealed with the key that it names, for this place.
        Raises PayloadUndecodable if that key is not known here.
        """
        head = sealed[:_HEAD]
        seal = self._seals.get(head)
        if seal is None:
            raise self._unknown(head)
        body = seal.open(place, sealed, _HEAD)
        if body is None:
            raise PayloadRefused(NOT_FOR_HERE)
        return body

    def _unknown(self, head: bytes) -> PayloadUndecodable:
        """Why nothing that begins so is opened. Raises OtherFormat."""
        formats.require_magic(head, MAGIC)
        if head[: len(MAGIC)] != MAGIC or len(head) < _HEAD:
            return PayloadRefused("it is not sealed with any key")
        tag = head[-TAG_BYTES:]
        if tag in self._tags:
            return PayloadRefused(NOT_FOR_HERE)
        return PayloadUndecodable(
            f"it is sealed with another secret (the key {tag.hex()}), which is not known "
            "here: give the file with that key (secret-files)"
        )

    def is_current(self, sealed: bytes) -> bool:
        """Whether the key that seals now has sealed it, as far as it says itself."""
        return sealed[:_HEAD] == self._head


def _seal_of(key: Key, uid: bytes) -> Seal:
    if key.kind == SECRET:
        return _Hash(derived(key, uid), uid)
    if key.kind == AES:
        from .aes import Encrypting

        return Encrypting(derived(key, uid), uid)
    from .ed25519 import Signing

    return Signing(key.material, uid, is_private=key.kind == SIGNING)


def derived(key: Key, uid: bytes) -> bytes:
    """The key of the root with that uid. So roots that share a key seal differently."""
    person = b"zkplan.root.aes" if key.kind == AES else b"zkplan.root.mac"
    return blake2b(uid, key=key.material, person=person, digest_size=32).digest()


def without_proof(sealed: bytes) -> bytes:
    """What was sealed, whoever did it: nothing proves it. Raises PayloadUndecodable if it is
    encrypted."""
    if sealed[: len(MAGIC)] != MAGIC:
        return sealed
    proofs = {_Hash.kind: _PROOF, b"S": 64}
    proof = proofs.get(sealed[len(MAGIC) : len(MAGIC) + 1])
    if proof is None:
        raise PayloadUndecodable("it is encrypted with a key that is not known here")
    return sealed[_HEAD + proof :]
