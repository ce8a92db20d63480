"""Who does what the history tells of, where it is no worker."""

from __future__ import annotations

import getpass
import os
import socket

#: The most characters that each event may take for it.
CHARS_MAX = 80


def person() -> str:
    """The user of this process and its machine, as `ann@build7`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may have no names
        user = str(os.getuid())
    return f"{user}@{socket.gethostname().split('.')[0]}"[:CHARS_MAX]
