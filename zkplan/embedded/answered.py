"""A note beside the database: up to which zxid clients were answered. A start must find as much.

SQLite reads its log up to the first gap and takes that for the end. So a log that was cut or taken
away, or a database put back from an older copy, looks like a sound older state. The note shows that
something is missing. It is written after each commit and before the answers leave, and not flushed:
after a power cut it may be some seconds old, which shows less but never blames a sound folder.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from zkplan.basics.own_files import PRIVATE_FILE, read_own

NOTE = "answered"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_FORM = re.compile(r"(\d{20}) (\S+)\n", re.ASCII)


class Answered:
    """The note of one data folder; `begin` it, `note` after each commit, `close` it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._boot = _boot_id()
        self._file = -1

    def missing_after(self, zxid: int, *, flushed: bool) -> str | None:
        """What is wrong with a database that ends with `zxid`, or None.

        Without `flushed` (the server did not wait for the disk), nothing is known after a restart
        of the machine: a power cut may have taken what was answered last.
        """
        try:
            text = read_own(self._folder / NOTE)
        except FileNotFoundError:
            return None
        found = _FORM.fullmatch(text)
        if found is None:
            return f"its note {NOTE} is not one that a server wrote"
        noted = int(found[1])
        if noted <= zxid or not (flushed or found[2] == self._boot):
            return None
        return (
            f"clients were answered up to zxid {noted:#x}, but it holds the writes up to"
            f" {zxid:#x} only. Its log was cut or taken away, or it is an older copy. To go on"
            f" without the missing writes, delete {self._folder / NOTE}"
        )

    def begin(self, zxid: int) -> None:
        """Write a new note, durably. Raises OSError."""
        new = self._folder / f"{NOTE}.new"
        new.unlink(missing_ok=True)
        self._file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
        self.note(zxid)
        os.fsync(self._file)
        os.replace(new, self._folder / NOTE)

    def note(self, zxid: int) -> None:
        """Everything up to `zxid` is stored and may be answered. Raises OSError."""
        text = f"{zxid:020d} {self._boot}\n".encode()
        if os.pwrite(self._file, text, 0) != len(text):
            raise OSError(errno.EIO, f"the note {NOTE} was written in part")

    def close(self) -> None:
        """Harmless when repeated."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return f"unknown-{os.getpid()}"  # not Linux: equal to that of no other start
