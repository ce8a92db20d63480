"""Keys with identities: how they are written in files, how strong they are, how they are made."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from ..errors import InvalidSettings
from ..settings import Settings
from ..settings.private import read_private

#: A secret key authenticates; one of `aes` encrypts besides; ed25519 signs, its public half reads.
SECRET, AES, SIGNING, READING = "secret", "aes", "ed25519", "ed25519-public"
KINDS = (SECRET, AES, SIGNING, READING)
#: How many bytes of a key's name and content stand before each sealed record.
TAG_BYTES = 4
_KEY_BYTES, _KEY_BYTES_MAX = 32, 64
#: Of 32 random bytes hardly ever fewer than 24 differ; of a word that somebody typed, few do.
_DIFFERENT_MIN = 12
_ID = re.compile(r"[A-Za-z0-9._-]{1,40}")
_HOW = "make one with `zkplan root new-key FILE`"


@dataclass(frozen=True, repr=False)
class Key:
    """One key. `material` are its bytes: 32 at least, and 32 for every kind but `secret`."""

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
        """What names the key in the tree. Who signs and who only reads give it the same name.

        It tells nothing of a random key, and other bytes under the same ID get another tag: so a
        process with a wrong key leaves things to others, and does not take them for forged.
        """
        kind, known = self.kind, self.material
        if kind == SIGNING:
            from .ed25519 import public_of

            kind, known = READING, public_of(known)
        text = f"{kind}:{self.id}:".encode() + known
        return blake2b(text, digest_size=TAG_BYTES, person=b"zkplan.key.tag").digest()

    @property
    def name(self) -> str:
        """What people and `zkplan worker ls` call it: nothing in it is secret."""
        return f"{self.id}:{self.tag.hex()}"

    def to_line(self) -> str:
        kind = "" if self.kind == SECRET else f"{self.kind}:"
        return f"{self.id}:{kind}{self.material.hex()}"


def new_key(identity: str, kind: str = SECRET) -> Key:
    """A random key. Raises InvalidSettings for an identity or a kind that cannot be."""
    if kind not in (SECRET, AES, SIGNING):
        raise InvalidSettings(f"a key is of the kind {SECRET}, {AES} or {SIGNING}, not {kind!r}")
    return _key(identity, kind, secrets.token_bytes(_KEY_BYTES).hex(), "the key")


def public_key(key: Key) -> Key:
    """The half of an ed25519 key with which one reads, and seals nothing."""
    from .ed25519 import public_of

    return Key(key.id, READING, public_of(key.material))


def parse_keys(text: str, origin: str) -> list[Key]:
    """The keys in the lines `ID:KEY`, `ID:KIND:KEY` or `KEY` of a file.

    Empty lines and those that begin with `#` are passed over. Raises InvalidSettings, which names
    the line and never shows it.
    """
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        parts = [part.strip() for part in line.strip().split(":")]
        if parts == [""] or parts[0].startswith("#"):
            continue
        where = f"{origin}, line {number}"
        if len(parts) > 3:
            raise InvalidSettings(f"{where}: a key is ID:KEY or ID:KIND:KEY: {_HOW}")
        identity = parts[0] if len(parts) > 1 else "-"
        kind = parts[1] if len(parts) == 3 else SECRET
        found.append(_key(identity, kind, parts[-1], where))
    if not found:
        raise InvalidSettings(f"{origin} is empty: it holds no key: {_HOW}")
    return found


def names_of(keys: Sequence[Key]) -> str:
    """The names of these keys, in their order: the first one seals."""
    return " ".join(key.name for key in keys)


def check_keys(keys: Sequence[Key]) -> Sequence[Key]:
    """Raises InvalidSettings where two keys cannot be told apart."""
    ids, tags = [key.id for key in keys], [key.tag for key in keys]
    for key in keys:
        if ids.count(key.id) > 1 or tags.count(key.tag) > 1:
            raise InvalidSettings(
                f"secret-files: two keys are called {key.id!r}: each key needs an ID of its own"
            )
    return keys


def read_keys(files: Sequence[str]) -> list[Key]:
    """The keys of these files, in their order: the first one seals, all open.

    Raises InvalidSettings for a file that others may read, for one without a key, and for a key
    that is too short or not random.
    """
    found: list[Key] = []
    for file in files:
        text = read_private(file, "the secret file").decode(errors="replace")
        found += parse_keys(text, f"the secret file {file}")
    return list(check_keys(found))


def keys_of(settings: Settings) -> list[Key]:
    """The keys that these settings name; none where they name none. Raises as `read_keys`."""
    if settings.secret:
        found = parse_keys(settings.secret.decode(errors="replace"), "the secret")
        return list(check_keys(found))
    return read_keys(settings.secret_files) if settings.secret_files else []


def _key(identity: str, kind: str, text: str, where: str) -> Key:
    if not _ID.fullmatch(identity):
        raise InvalidSettings(
            f"{where}: the ID of a key has up to 40 letters, digits, dots, dashes, underscores"
        )
    if kind not in KINDS:
        raise InvalidSettings(f"{where}: the kind of a key is one of {', '.join(KINDS)}")
    try:
        material = bytes.fromhex(text)
    except ValueError:
        material = b""
    most = _KEY_BYTES_MAX if kind == SECRET else _KEY_BYTES
    if not _KEY_BYTES <= len(material) <= most or len(set(material)) < _DIFFERENT_MIN:
        raise InvalidSettings(
            f"{where}: a key is {_KEY_BYTES} random bytes as {2 * _KEY_BYTES} hexadecimal digits; "
            f"whoever reads the tree could guess less: {_HOW}"
        )
    return Key(identity, kind, material)
