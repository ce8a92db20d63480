"""Take secrets out of the environment of this process, and out of what the system shows of it.

`/proc/PID/environ` is the memory that a process began with. A variable that is only unset stays
there, where every process of the same user reads it, and so every task.
"""

from __future__ import annotations

import os

from .fields import SECRET_VARIABLES


def take_secrets_away() -> None:
    """Unset the variables that hold secrets, and write zeros over their values.

    Whoever started this process may still have them.
    """
    import ctypes  # only commands that run tasks or serve need it

    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    for name in SECRET_VARIABLES:
        value = libc.getenv(name.encode())
        if value is not None:
            ctypes.memset(value, 0, len(ctypes.string_at(value)))
        os.environ.pop(name, None)
