"""A file system of its own for the data of a server, which can be full from now on."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

#: It takes the memory of what is written to it only; half an hour writes one or two gigabytes.
_SIZE_BYTES = 8 * 1024**3
_TRIES = 50


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
        """Leave so much room. The size changes, and not what is used: nobody has to write it."""
        for _ in range(_TRIES):
            # The server writes meanwhile, and no file system becomes smaller than what is in it.
            if self._resized(self.used_bytes + spare_bytes):
                return
        raise OSError(f"{self.folder} cannot be made smaller")

    def free(self) -> None:
        """As much room as at first."""
        self._resized(_SIZE_BYTES)

    def _resized(self, size_bytes: int) -> bool:
        remount = ["mount", "-o", f"remount,size={size_bytes}", str(self.folder)]
        return subprocess.run(remount, capture_output=True).returncode == 0
