"""Why there is no connection: kazoo tells it to its log only.

A refused connection, a name without an address, a certificate that is not trusted or has expired.
"""

from __future__ import annotations

import logging
from typing import Any

from kazoo.client import KazooClient

from ..log import without_values

#: Warnings without a reason: that kazoo gives up because it is closed, or that it tries again.
_EMPTY = ("Failed connecting", "Transition to CONNECTING")


class ComplaintLogger(logging.LoggerAdapter):  # type: ignore[type-arg]
    """Passes on what kazoo logs, and keeps its last warning while there is no connection.

    Below INFO kazoo logs each request and answer whole: logins, and the pickles of all arguments.
    Only their types are passed on, whichever logger the user gave.
    """

    complaint = ""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if level < logging.INFO:
            if not self.logger.isEnabledFor(level):  # some fifteen lines for each round trip
                return
            args = tuple(map(without_values, args))
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
