"""Read and make keys, seal bytes with the first of them, and open bytes with any."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from hmac import compare_digest
from typing import Protocol

from ..basics.private import read_private
from ..basics.settings import Settings
from ..errors import InvalidSettings, PayloadRefused, PayloadUndecodable
from ..protocol import formats

#: A `secret` key authenticates, an `aes` key also encrypts, an ed25519 key signs, and its public
#: half reads.
SECRET, AES, SIGNING, READING = "secret", "aes", "ed25519", "ed25519-public"
KINDS = (SECRET, AES, SIGNING, READING)
#: The length of the tag before each sealed record.
TAG_BYTES = 4
_KEY_BYTES, _KEY_BYTES_MAX = 32, 64
#: 32 random bytes nearly always have 24 different values or more; a typed word has few.
_DIFFERENT_MIN = 12
_ID = re.compile(r"[A-Za-z0-9._-]{1,40}")
_HOW = "make one with `zkplan root new-key FILE`"


@dataclass(frozen=True, repr=False)
class Key:
    """One key. `material` are its bytes: 32, or for the kind `secret` 32 to 64."""

    id: str
    kind: str
    material: bytes

    def __repr__(self) -> str:
        return f"Key({self.id!r}, {self.kind!r})"  # never its bytes

    @property
    def can_seal(self) -> bool:
        return self.kind != READING

    @property
    def tag(self) -> bytes:
        """The name of the key in the tree, the same for both halves of an ed25519 key.

        It reveals nothing of a random key. Other bytes with the same ID have another tag, so a
        process with a wrong key leaves data to others and does not treat them as forged.
        """
        kind, known = self.kind, self.material
        if kind == SIGNING:
            from .aes_ed25519 import public_of

            kind, known = READING, public_of(known)
        text = f"{kind}:{self.id}:".encode() + known
        return blake2b(text, digest_size=TAG_BYTES, person=b"zkplan.key.tag").digest()

    @property
    def name(self) -> str:
        """Its name for people and `zkplan worker ls`. Nothing in it is secret."""
        return f"{self.id}:{self.tag.hex()}"

    def to_line(self) -> str:
        kind = "" if self.kind == SECRET else f"{self.kind}:"
        return f"{self.id}:{kind}{self.material.hex()}"


def new_key(identity: str, kind: str = SECRET) -> Key:
    """A random key. Raises InvalidSettings for an invalid identity or kind."""
    if kind not in (SECRET, AES, SIGNING):
        raise InvalidSettings(f"a key must be of kind {SECRET}, {AES} or {SIGNING}, not {kind!r}")
    return _key(identity, kind, secrets.token_bytes(_KEY_BYTES).hex(), "the key")


def public_key(key: Key) -> Key:
    """The half of an ed25519 key that can only read."""
    from .aes_ed25519 import public_of

    return Key(key.id, READING, public_of(key.material))


def parse_keys(text: str, origin: str) -> list[Key]:
    """The keys in the lines `ID:KEY`, `ID:KIND:KEY` or `KEY` of a file.

    Empty lines and lines that begin with `#` are ignored. Raises InvalidSettings, which names the
    line and never shows it.
    """
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        parts = [part.strip() for part in line.strip().split(":")]
        if parts == [""] or parts[0].startswith("#"):
            continue
        where = f"{origin}, line {number}"
        if len(parts) > 3:
            raise InvalidSettings(f"{where}: a key must be ID:KEY or ID:KIND:KEY: {_HOW}")
        identity = parts[0] if len(parts) > 1 else "-"
        kind = parts[1] if len(parts) == 3 else SECRET
        found.append(_key(identity, kind, parts[-1], where))
    if not found:
        raise InvalidSettings(f"{origin} is empty: it holds no key: {_HOW}")
    return found


def names_of(keys: Sequence[Key]) -> str:
    """The names of these keys, in order: the first one seals."""
    return " ".join(key.name for key in keys)


def check_keys(keys: Sequence[Key]) -> Sequence[Key]:
    """Raises InvalidSettings if two keys have the same ID or tag."""
    ids, tags = [key.id for key in keys], [key.tag for key in keys]
    for key in keys:
        if ids.count(key.id) > 1 or tags.count(key.tag) > 1:
            raise InvalidSettings(
                f"secret-files: two keys are called {key.id!r}: each key needs an ID of its own"
            )
    return keys


def read_keys(files: Sequence[str]) -> list[Key]:
    """The keys of these files, in order: the first one seals, all open.

    Raises InvalidSettings for a file that others may read, for one without a key, and for a key
    that is too short or not random.
    """
    found: list[Key] = []
    for file in files:
        text = read_private(file, "the secret file").decode(errors="replace")
        found += parse_keys(text, f"the secret file {file}")
    return list(check_keys(found))


def keys_of(settings: Settings) -> list[Key]:
    """The keys that these settings name, if any. Raises as `read_keys`."""
    if settings.secret:
        found = parse_keys(settings.secret.decode(errors="replace"), "the secret")
        return list(check_keys(found))
    return read_keys(settings.secret_files) if settings.secret_files else []


def _key(identity: str, kind: str, text: str, where: str) -> Key:
    if not _ID.fullmatch(identity):
        raise InvalidSettings(
            f"{where}: the ID of a key must be 1 to 40 letters, digits, dots, dashes, underscores"
        )
    if kind not in KINDS:
        raise InvalidSettings(f"{where}: the kind of a key must be one of {', '.join(KINDS)}")
    try:
        material = bytes.fromhex(text)
    except ValueError:
        material = b""
    most = _KEY_BYTES_MAX if kind == SECRET else _KEY_BYTES
    if not _KEY_BYTES <= len(material) <= most or len(set(material)) < _DIFFERENT_MIN:
        raise InvalidSettings(
            f"{where}: a key must be {_KEY_BYTES} random bytes as {2 * _KEY_BYTES} hexadecimal "
            f"digits; a reader of the tree could guess a weaker one: {_HOW}"
        )
    return Key(identity, kind, material)


# ---- Seal bytes for a place with the first key, and open them with the key that sealed them.
#
#     z3  KIND  TAG  PROOF  BODY
#
# KIND is one letter, TAG names the key. The proof is over the place and the body: 16 bytes of keyed
# BLAKE2b (`H`), or 64 bytes of Ed25519 (`S`); with AES-GCM (`G`) it is the nonce of 12 bytes, and
# the body is encrypted and followed by 16 bytes that prove it.


MAGIC = formats.SEALED
_HEAD = len(MAGIC) + 1 + TAG_BYTES
_PROOF, _PERSON = 16, b"zkplan.seal.z3"
NOT_FOR_HERE = "it was not sealed for this place: it was changed, or moved here from elsewhere"


class Seal(Protocol):
    """Seals and opens with one key of one root. `kind` is the letter of its algorithm."""

    kind: bytes

    def seal(self, place: bytes, body: bytes) -> bytes: ...

    def open(self, place: bytes, sealed: bytes, at: int) -> bytes | None:
        """The body in `sealed`, whose proof begins at `at`, after the tag; None if the body was not
        sealed with this key for this place."""


class _Hash:
    """Keyed BLAKE2b. No place has a null byte, so it separates the place from the body."""

    kind = b"H"

    def __init__(self, key: bytes, uid: bytes) -> None:
        #: It has processed the key. Copying it costs a third of processing the key again.
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
    """The keys of one root. They are derived from `uid`, which is unique to the root."""

    def __init__(self, keys: Sequence[Key], uid: bytes) -> None:
        made = [(key.tag, _seal_of(key, uid)) for key in keys]
        #: By the head of sealed data: the kind and the tag.
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
        """The body. Nothing reads it before its proof is checked.

        Raises PayloadRefused if it was not sealed with the key that it names for this place, and
        PayloadUndecodable if that key is not known here.
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
        """Why data with this head cannot be opened. Raises OtherFormat."""
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
        """Whether its head names the key that seals now."""
        return sealed[:_HEAD] == self._head


def _seal_of(key: Key, uid: bytes) -> Seal:
    if key.kind == SECRET:
        return _Hash(derived(key, uid), uid)
    if key.kind == AES:
        from .aes_ed25519 import Encrypting

        return Encrypting(derived(key, uid), uid)
    from .aes_ed25519 import Signing

    return Signing(key.material, uid, is_private=key.kind == SIGNING)


def derived(key: Key, uid: bytes) -> bytes:
    """The key of the root with that uid, so that roots with one key seal differently."""
    person = b"zkplan.root.aes" if key.kind == AES else b"zkplan.root.mac"
    return blake2b(uid, key=key.material, person=person, digest_size=32).digest()


def without_proof(sealed: bytes) -> bytes:
    """The body, without a check of its proof. Raises PayloadUndecodable if it is encrypted."""
    if sealed[: len(MAGIC)] != MAGIC:
        return sealed
    proofs = {_Hash.kind: _PROOF, b"S": 64}
    proof = proofs.get(sealed[len(MAGIC) : len(MAGIC) + 1])
    if proof is None:
        raise PayloadUndecodable("it is encrypted, so it cannot be read without its key")
    return sealed[_HEAD + proof :]
