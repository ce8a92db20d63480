"""What a step gets in place of data that are not sealed for the place where they lie.

With keys every read is opened before a step sees it (`zkplan.protection`). What cannot be opened
becomes an `Unproven`: bytes that no parser of zkplan takes, and that say why. So a step that knows
nothing of keys meets a damaged record, and uses nothing of it.
"""

from __future__ import annotations

from ..errors import PayloadRefused, PayloadUndecodable
from . import formats

#: The answer to those who have no key.
SEALED = "it is sealed with a secret, and none is configured here: give its file (secret-files)"


class Unproven(bytes):
    """Stands for data that were refused. `error` says what was refused, where, and why."""

    error: PayloadUndecodable

    def __new__(cls, error: PayloadUndecodable) -> Unproven:
        # Neither JSON, nor digits, nor an envelope, and not empty: empty data have a meaning.
        made = super().__new__(cls, b"\0 refused")
        made.error = error
        return made

    @property
    def is_forged(self) -> bool:
        """Whether no holder of a known key has sealed it; if not, the key is unknown here."""
        return isinstance(self.error, PayloadRefused)


def require_proven(data: bytes) -> None:
    """Raises PayloadRefused, or PayloadUndecodable, if `data` were refused when they were read."""
    if isinstance(data, Unproven):
        raise data.error


def require_known_key(path: str, data: bytes) -> None:
    """As `require_opened`, but data that nobody with a known key has sealed are let pass: they say
    nothing of the keys of those who read what is written beside them."""
    if not (isinstance(data, Unproven) and data.is_forged):
        require_opened(path, data)


def require_opened(path: str, data: bytes) -> None:
    """For who writes anew what he has read: raises PayloadUndecodable where nobody could read it
    here, with another key or with none."""
    require_proven(data)
    if data.startswith(formats.SEALED):
        raise PayloadUndecodable(f"{path} is not used: {SEALED}")
