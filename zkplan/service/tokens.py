"""Tokens: who may ask what. Their file holds digests alone, of which no token can be made."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from ..errors import InvalidSettings
from ..log import get_logger
from ..settings.private import read_private

Role = Literal["read", "operate", "author", "work"]
ROLES: tuple[Role, ...] = get_args(Role)
#: Roles that may read, too.
_READERS = frozenset(("read", "operate", "author"))
_TOKEN = re.compile(r"zkp_([0-9a-f]{8})_([A-Za-z0-9_-]{43})")
_LINE = re.compile(r"([0-9a-f]{8}) ([a-z,]+) ([0-9a-f]{64})(?: (.*))?")
log = get_logger("zkplan.service")


class Caller(NamedTuple):
    """Who asks: the id of the token, what it was called when it was made, and its roles."""

    id: str
    name: str
    roles: frozenset[Role]

    def may(self, role: Role) -> bool:
        """Whether it has the role. Who may operate or author may read, too."""
        return role in self.roles or (role == "read" and bool(_READERS & self.roles))


#: Who asks a service that is open.
ANYBODY = Caller("", "anybody", frozenset(ROLES))


class _Known(NamedTuple):
    caller: Caller
    digest: bytes


class Tokens:
    """The tokens of a service. Of a file it notices changes by itself."""

    def __init__(self, file: Path | None = None) -> None:
        """Raises InvalidSettings for a file that cannot be read, or that others can read."""
        self._file = file
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._seen: tuple[int, int, int] | None = None
        if file is not None:
            self._known, self._seen = _read(file), _signs(file)

    def add_one_time(self) -> str:
        """A new token with every role, which lasts as long as this service."""
        text, known = _new("one-time", ROLES)
        self._known[known.caller.id] = known
        return text

    def find(self, text: str) -> Caller | None:
        """Whose token that is; None for one that is not known."""
        self._refresh()
        match = _TOKEN.fullmatch(text)
        known = self._known.get(match[1]) if match else None
        if known is None or not hmac.compare_digest(known.digest, _digest(text)):
            return None
        return known.caller

    def _refresh(self) -> None:
        if self._file is None:
            return
        seen = _signs(self._file)
        if seen == self._seen:
            return
        with self._lock:
            self._seen = seen
            try:
                self._known = _read(self._file)
            except InvalidSettings as error:
                # A file that is gone or wrong lets nobody in: it may have been meant so.
                self._known = {}
                log.error("no token counts: %s", error)


def _signs(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _digest(text: str) -> bytes:
    # A token has 256 random bits: there is nothing to guess that a slow digest would protect.
    return hashlib.sha256(text.encode()).digest()


def _new(name: str, roles: Collection[Role]) -> tuple[str, _Known]:
    number = secrets.token_hex(4)
    text = f"zkp_{number}_{secrets.token_urlsafe(32)}"
    return text, _Known(Caller(number, name, frozenset(roles)), _digest(text))


def _read(file: Path) -> dict[str, _Known]:
    text = read_private(str(file), "the file of tokens").decode(errors="replace")
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        roles = match[2].split(",") if match else []
        if match is None or not set(roles) <= set(ROLES):
            raise InvalidSettings(
                f"{file}:{number}: a line is ID ROLES DIGEST NAME, as `zkplan serve new-token` "
                f"writes it, with roles of {', '.join(ROLES)}"
            )
        known: list[Role] = [role for role in ROLES if role in roles]
        caller = Caller(match[1], match[4] or "", frozenset(known))
        found[match[1]] = _Known(caller, bytes.fromhex(match[3]))
    return found


def new_token(file: Path, name: str, roles: Collection[Role]) -> str:
    """Add a token to the file, which is made if it is missing, and return it: it is never shown
    again.

    Raises InvalidSettings if the file cannot be used, or if others can read it.
    """
    if not name.isprintable() or len(name) > 100:
        raise InvalidSettings(f"the name of a token has at most 100 printable characters: {name!r}")
    if file.exists():
        _read(file)  # refuse to add to what is wrong, or to what others read
    text, known = _new(name, roles)
    told = ",".join(role for role in ROLES if role in roles)
    line = f"{known.caller.id} {told} {known.digest.hex()} {name}".rstrip()
    try:
        place = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(place, "w") as opened:
            opened.write(f"{line}\n")
    except OSError as error:
        raise InvalidSettings(f"the file of tokens {file}: {error.strerror}") from None
    return text
