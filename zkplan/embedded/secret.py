"""The secret of a data folder: who may read the folder may sign what its workers run.

Anybody on the machine can connect to the port of a server. So those who name the folder, not the
port, sign with what only its owner can read.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path

from zkplan.embedded.database import DATABASE, sync_folder
from zkplan.embedded.lock import PRIVATE_FILE
from zkplan.embedded.storage import make_folder

SECRET = "secret"


def new_secret() -> str:
    """One that nobody guesses."""
    return secrets.token_hex(32)


def folder_secret(folder: Path) -> str:
    """The secret of a folder, made with a new one; empty where plans were kept there before.

    Those are signed with nothing, or with what their owner gave. Raises OSError.
    """
    file = folder / SECRET
    if not file.exists() and (folder / DATABASE).exists():
        return ""
    make_folder(folder)
    opened = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, PRIVATE_FILE)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)  # of two that make it the second one finds it whole
        found = os.pread(opened, 1024, 0)
        if not found.endswith(b"\n"):  # new, or its maker has died before anybody knew it
            found = f"{new_secret()}\n".encode()
            os.ftruncate(opened, 0)
            os.pwrite(opened, found, 0)
            # Before anything is signed with it: lost in a power cut it would take the plans along.
            os.fsync(opened)
            sync_folder(folder)
        return found.decode("ascii", "replace").strip()
    finally:
        os.close(opened)
