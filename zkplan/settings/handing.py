"""Hand settings to a child process, with their secrets, through a pipe that it inherits.

Every user can read the command line of a process, and each task can read the environment of its
worker. The pipe is read once, before any task runs.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict

from ..errors import InvalidSettings
from .settings import Settings

#: The environment variable that holds the descriptor of the pipe.
_FD = "ZKPLAN_SETTINGS_FD"
#: A pipe takes this much on every system before somebody reads.
_MOST_BYTES = 16_384


class Handed:
    """Settings on their way to one process."""

    def __init__(self, settings: Settings) -> None:
        """Raises InvalidSettings if they are too long."""
        content = _packed(settings)
        if len(content) > _MOST_BYTES:
            raise InvalidSettings("the settings are too long for a child process")
        self.to_pass, write = os.pipe()
        try:
            os.write(write, content)
        finally:
            os.close(write)

    def environment(self) -> dict[str, str]:
        """What the process must find in its environment."""
        return {_FD: str(self.to_pass)}

    def was_passed(self) -> None:
        """Close our copy, once the process has its own."""
        os.close(self.to_pass)


def take_handed() -> Settings | None:
    """The settings that were handed to this process; None if none were, or they were taken."""
    # No process that this one or its tasks start may inherit the variable or the descriptor.
    number = os.environ.pop(_FD, None)
    if number is None:
        return None
    with open(int(number), "rb") as pipe:
        return _unpacked(pipe.read())


def _packed(settings: Settings) -> bytes:
    values = asdict(settings) | {"secret": settings.secret.hex(), "origins": {**settings.origins}}
    return json.dumps(values).encode()


def _unpacked(content: bytes) -> Settings:
    values = json.loads(content)
    values["secret"] = bytes.fromhex(values["secret"])
    for name in ("secret_files", "queue"):
        values[name] = tuple(values[name])
    return Settings(**values)
