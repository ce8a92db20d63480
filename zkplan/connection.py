"""What reaches the plans under one root: transport, paths, codec, and the commands for a user."""

from __future__ import annotations

from .errors import ZkplanError
from .protocol.layout import Paths
from .serialization.codec import Codec
from .text import command
from .transport import Transport

DEFAULT_ROOT = "/zkplan"


class Connection:
    """What everything on the author's side shares: plans, tasks, and the views of `inspect`."""

    def __init__(
        self,
        transport: Transport,
        root: str = DEFAULT_ROOT,
        secret: bytes = b"",
        hosts: str = "",
    ) -> None:
        """`hosts` is how others reach the same server, where `transport` connects to another."""
        self.transport = transport
        self._hosts = hosts
        self.paths = Paths(_checked_root(root))
        self.codec = Codec(secret)
        #: Of exported plans. A secret that an embedded server has for itself stays there.
        self.file_codec = self.codec

    @property
    def root(self) -> str:
        return self.paths.root

    def command(self, words: str) -> str:
        """That command of `zkplan` as it is to be typed, to reach the plans of this client."""
        hosts = self._hosts or f"{self.transport.hosts}{self.transport.client.chroot}"
        return command(words, hosts, self.root)


def _checked_root(root: str) -> str:
    parts = root.strip("/").split("/")
    plain = all(part not in ("", ".", "..", "zookeeper") and part.isprintable() for part in parts)
    if not root.startswith("/") or not plain:
        raise ZkplanError(f"the root must be a path like /zkplan, not {root!r}")
    return "/" + "/".join(parts)
