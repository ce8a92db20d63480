"""Who does what the history tells of, where it is no worker."""

from __future__ import annotations

import getpass
import os
import socket
from contextvars import ContextVar

#: The most characters that each event may take for it.
CHARS_MAX = 80
#: In whose name this thread or coroutine acts; empty for the process itself. A service sets it.
acting: ContextVar[str] = ContextVar("zkplan_acting", default="")


def person() -> str:
    """The user of this process and its machine, as `ann@build7`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may have no names
        user = str(os.getuid())
    return f"{user}@{socket.gethostname().split('.')[0]}"[:CHARS_MAX]
