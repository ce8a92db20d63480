"""A ZooKeeper server in Python, for one machine; it imports nothing else of zkplan.

EmbeddedServer     serves any ZooKeeper client, in a thread or as a process
Limits             what it refuses before it is in danger
address_of(folder) where the server of a data folder listens now
folder_secret(folder), new_secret()
                   what is signed with where the port is open to all users of the machine
StorageError       the data folder cannot be used: StorageLocked (another server has it),
                   StorageDamaged, or the disk failed
"""

from __future__ import annotations

from zkplan.embedded.hosting import EmbeddedServer
from zkplan.embedded.limits import Limits
from zkplan.embedded.lock import address_of
from zkplan.embedded.secret import folder_secret, new_secret
from zkplan.embedded.storage_errors import StorageDamaged, StorageError, StorageLocked

__all__ = [
    "EmbeddedServer",
    "Limits",
    "StorageDamaged",
    "StorageError",
    "StorageLocked",
    "address_of",
    "folder_secret",
    "new_secret",
]
