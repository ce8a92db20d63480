"""Why a data folder cannot be used: locked, damaged, or the disk refused."""

from __future__ import annotations


class StorageError(OSError):
    """A data folder cannot be used (any longer); the message says why and what to do now.

    Once a commit raised it the folder takes no more: what was committed before is on disk, and the
    server must end without answering what it has not committed.
    """


class StorageLocked(StorageError):
    """Another server (`by_server`), or another program, is using the data folder."""

    by_server = False


class StorageDamaged(StorageError):
    """The files of a data folder are not what a server wrote; nothing of them was changed."""
