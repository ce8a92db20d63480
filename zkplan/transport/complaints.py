"""What kazoo complains of: it tells it to its log and to nobody else.

A refused connection, a name without an address, a certificate that is not trusted or has expired.
"""

from __future__ import annotations

import logging
from typing import Any

from kazoo.client import KazooClient

#: Complaints that say nothing of the reason: of giving up, when it is closed, and of trying again.
_EMPTY = ("Failed connecting", "Transition to CONNECTING")


class Overheard(logging.LoggerAdapter):  # type: ignore[type-arg]
    """Passes on what kazoo says, and remembers its last complaint while there is no connection."""

    complaint = ""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        super().log(level, msg, *args, **kwargs)
        if level >= logging.WARNING and not str(msg).startswith(_EMPTY):
            text = str(msg) % args if args else str(msg)
            if not (self.complaint and text.endswith(": None")):  # it knew more before
                self.complaint = text
        elif str(msg).startswith("Zookeeper connection established"):
            self.complaint = ""


def why(client: KazooClient) -> str:
    """Why it is not connected, in brackets and after a space; nothing where that is not known."""
    overheard = client.logger
    complaint = overheard.complaint if isinstance(overheard, Overheard) else ""
    return f" ({complaint})" if complaint else ""
