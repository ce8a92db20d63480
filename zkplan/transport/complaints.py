"""Why there is no connection: kazoo tells it to its log only.

A refused connection, a name without an address, a certificate that is not trusted or has expired.
"""

from __future__ import annotations

import logging
from typing import Any

from kazoo.client import KazooClient
from kazoo.protocol.serialization import SASL, Auth

#: Warnings without a reason: that kazoo gives up because it is closed, or that it tries again.
_EMPTY = ("Failed connecting", "Transition to CONNECTING")


_LOGINS = (Auth, SASL)


class ComplaintLogger(logging.LoggerAdapter):  # type: ignore[type-arg]
    """Passes on what kazoo logs but passwords, and keeps its last warning without a connection."""

    complaint = ""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        # kazoo logs each request at the level DEBUG, and a login is one.
        args = tuple(
            f"{type(each).__name__}(…)" if isinstance(each, _LOGINS) else each for each in args
        )
        super().log(level, msg, *args, **kwargs)
        if level >= logging.WARNING and not str(msg).startswith(_EMPTY):
            text = str(msg) % args if args else str(msg)
            if not (self.complaint and text.endswith(": None")):  # the one before says more
                self.complaint = text
        elif str(msg).startswith("Zookeeper connection established"):
            self.complaint = ""


def why(client: KazooClient) -> str:
    """Why it is not connected, as " (reason)"; empty where that is not known."""
    logger = client.logger
    complaint = logger.complaint if isinstance(logger, ComplaintLogger) else ""
    return f" ({complaint})" if complaint else ""
