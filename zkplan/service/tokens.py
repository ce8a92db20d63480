"""Tokens: which caller may do what. The token file holds only digests."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import threading
import time
from collections.abc import Collection
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from ..basics.log import get_logger
from ..basics.private import BYTES_MAX, read_private
from ..errors import InvalidSettings

Role = Literal["read", "operate", "author", "work"]
ROLES: tuple[Role, ...] = get_args(Role)
#: Roles that include reading.
_READERS = frozenset(("read", "operate", "author"))
_TOKEN = re.compile(r"zkp_([0-9a-f]{8})_([A-Za-z0-9_-]{43})")
#: The prefix of the expiry time in a line.
_UNTIL = "until="
_LINE = re.compile(rf"([0-9a-f]{{8}}) ([a-z,]+) ([0-9a-f]{{64}})(?: {_UNTIL}(\S*))?(?: (.*))?")
#: A hundred years.
LASTS_MAX_S = 100 * 365 * 86400.0
log = get_logger("zkplan.service")


class Caller(NamedTuple):
    """The caller of a request: the id, the name and the roles of its token, and when that expires,
    in seconds since 1970."""

    id: str
    name: str
    roles: frozenset[Role]
    expires: float = float("inf")

    @property
    def holder(self) -> str:
        """The holder of its claims. Tokens of one name share it, so that one can replace another.
        Empty in an open service."""
        if not self.id:
            return ""
        return f"name {self.name}" if self.name else f"id {self.id}"

    def has_expired(self) -> bool:
        """Whether the token has expired."""
        return time.time() >= self.expires

    def may(self, role: Role) -> bool:
        """Whether the caller has the role. The roles operate and author include read."""
        return role in self.roles or (role == "read" and bool(_READERS & self.roles))


#: The caller of an open service.
ANYBODY = Caller("", "anybody", frozenset(ROLES))


class _Known(NamedTuple):
    caller: Caller
    digest: bytes


class Tokens:
    """The tokens of a service. Changes of the file count at once."""

    def __init__(self, file: Path | None = None) -> None:
        """Raises InvalidSettings for a file that cannot be read, or that others can read."""
        self._file = file
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._seen: tuple[int, int, int] | None = None
        if file is not None:
            self._known, self._seen = _read(file), _signs(file)

    def add_one_time(self) -> str:
        """Make a token with every role, which is valid as long as this service runs."""
        text, known = _new("one-time", ROLES)
        self._known[known.caller.id] = known
        return text

    def find(self, text: str) -> Caller | None:
        """The caller with this token, also if it has expired; None for an unknown token."""
        self._refresh()
        match = _TOKEN.fullmatch(text)
        known = self._known.get(match[1]) if match else None
        if known is None or not hmac.compare_digest(known.digest, _digest(text)):
            return None
        return known.caller

    def stands(self, caller: Caller) -> bool:
        """Whether the token is still valid: in the file as it was, and not expired."""
        self._refresh()
        known = self._known.get(caller.id)
        return known is not None and known.caller == caller and not caller.has_expired()

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
                # A file that is gone or wrong lets nobody in: that may be what its owner wants.
                self._known = {}
                log.error("no token is valid: %s", error)


def _signs(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _digest(text: str) -> bytes:
    # A token has 256 random bits. Nobody can guess it, so a fast digest is enough.
    return hashlib.sha256(text.encode()).digest()


def _new(name: str, roles: Collection[Role], expires: float = float("inf")) -> tuple[str, _Known]:
    number = secrets.token_hex(4)
    text = f"zkp_{number}_{secrets.token_urlsafe(32)}"
    return text, _Known(Caller(number, name, frozenset(roles), expires), _digest(text))


def _read(file: Path) -> dict[str, _Known]:
    text = read_private(str(file), "the file of tokens").decode(errors="replace")
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        roles = match[2].split(",") if match else []
        expires = _time(match[4]) if match else None
        if match is None or expires is None or not set(roles) <= set(ROLES):
            raise InvalidSettings(
                f"{file}:{number}: a line must be ID ROLES DIGEST NAME, as `zkplan serve "
                f"new-token` writes it, with roles of {', '.join(ROLES)}; the expiry time may come "
                f"before NAME, such as {_UNTIL}2026-12-31T00:00:00Z"
            )
        known: list[Role] = [role for role in ROLES if role in roles]
        caller = Caller(match[1], match[5] or "", frozenset(known), expires)
        found[match[1]] = _Known(caller, bytes.fromhex(match[3]))
    return found


def _time(text: str | None) -> float | None:
    """When a token expires, in seconds since 1970; None if the text is not a time with a zone."""
    if text is None:
        return float("inf")
    try:
        # Python 3.10 does not read a Z.
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return found.timestamp() if found.tzinfo is not None else None


def time_text(expires: float) -> str:
    """An expiry time as it is written in the file.

    >>> time_text(0.0)
    '1970-01-01T00:00:00Z'
    """
    return f"{datetime.fromtimestamp(expires, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def new_token(file: Path, name: str, roles: Collection[Role], lasts: float | None = None) -> str:
    """Add a token to `file`, which is created if it is missing, and return the token. The file
    holds only its digest. The token expires after `lasts` seconds, or never.

    Raises InvalidSettings if the file cannot be used, if others can read it, or if it is full.
    """
    if not name.isprintable() or len(name) > 100 or name.startswith(_UNTIL):
        raise InvalidSettings(
            "the name of a token must have at most 100 printable characters, and not begin with "
            f"{_UNTIL}: {name!r}"
        )
    if file.exists():
        _read(file)  # raises for a file that is wrong, or that others can read
    text, known = _new(name, roles)
    listed = ",".join(role for role in ROLES if role in roles)
    until = ""
    if lasts is not None:
        if not 0 < lasts <= LASTS_MAX_S:
            raise InvalidSettings("a token must last more than 0 seconds, and at most 100 years")
        until = f" {_UNTIL}{time_text(time.time() + lasts)}"
    line = f"{known.caller.id} {listed} {known.digest.hex()}{until} {name}".rstrip()
    if file.exists() and file.stat().st_size + len(line.encode()) >= BYTES_MAX:
        # A service that cannot read the whole file lets nobody in.
        raise InvalidSettings(
            f"the file of tokens {file} is full (at most {BYTES_MAX} bytes): remove lines from it"
        )
    try:
        place = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(place, "w") as opened:
            opened.write(f"{line}\n")
    except OSError as error:
        raise InvalidSettings(f"the file of tokens {file}: {error.strerror}") from None
    return text
