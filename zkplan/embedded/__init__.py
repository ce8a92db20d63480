"""A ZooKeeper server in Python, for one machine; it imports nothing else of zkplan.

EmbeddedServer     serves any ZooKeeper client, in a thread or as a process
Limits             what it refuses before it is in danger
Access             the login of a closed server, and what its owner signs with
address_of(folder) where the server of a data folder listens now
folder_access(folder), announced(host, port)
                   what its owner finds in the folder, or by the address of a server that runs
server_tls(certificate, key, client_ca)
                   TLS of a server's end
StorageError       the data folder cannot be used: StorageLocked (another server has it),
                   StorageDamaged, or the disk failed
"""

from __future__ import annotations

from zkplan.embedded.hosting import EmbeddedServer
from zkplan.embedded.limits import Limits

from .database import StorageDamaged, StorageError, StorageLocked, address_of
from .hosting import server_tls
from .login import Access, announced, folder_access

__all__ = [
    "Access",
    "EmbeddedServer",
    "Limits",
    "StorageDamaged",
    "StorageError",
    "StorageLocked",
    "address_of",
    "announced",
    "folder_access",
    "server_tls",
]
