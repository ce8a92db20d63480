"""A file system for the data of a server alone, or for a store: it can be full or read-only."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from contextlib import ExitStack
from pathlib import Path

#: A tmpfs takes only the memory of what it holds; half an hour of faults writes 1 to 2 GB.
_SIZE_BYTES = 8 * 1024**3
_TRIES, _BETWEEN_S = 50, 0.01


class Disk:
    """A tmpfs at `folder`, until the stack is closed. Needs root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def mounted(cls, folder: Path, stack: ExitStack) -> Disk | None:
        """None where this process may not mount."""
        mount = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE_BYTES}", "tmpfs", str(folder)]
        if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
            return None
        stack.callback(subprocess.run, ["umount", "-l", str(folder)], check=False)
        return cls(folder)

    @property
    def used_bytes(self) -> int:
        return shutil.disk_usage(self.folder).used

    def fill(self, spare_bytes: int) -> None:
        """Leave that much room, by making the file system smaller."""
        for _ in range(_TRIES):
            # The server writes meanwhile, and a file system cannot be smaller than its content.
            if self._resized(self.used_bytes + spare_bytes):
                return
        raise OSError(f"{self.folder} cannot be made smaller")

    def set_writable(self, writable: bool) -> None:
        """While somebody writes a file it cannot be made read-only, so this tries again."""
        pause = threading.Event()
        for _ in range(_TRIES):
            if self._remounted("rw" if writable else "ro"):
                return
            pause.wait(_BETWEEN_S)
        raise OSError(f"{self.folder} cannot be mounted anew")

    def free(self) -> None:
        """Give back all the room."""
        self._resized(_SIZE_BYTES)

    def _resized(self, size_bytes: int) -> bool:
        return self._remounted(f"size={size_bytes}")

    def _remounted(self, option: str) -> bool:
        remount = ["mount", "-o", f"remount,{option}", str(self.folder)]
        return subprocess.run(remount, capture_output=True).returncode == 0
