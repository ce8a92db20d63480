"""A new PostgreSQL for the length of a block, as shipped, so that it flushes every commit."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

USER = "zkplan"
_START_TIMEOUT_S = 60.0


def find_postgres() -> Path | None:
    """The folder of PostgreSQL's programs: of Debian's newest release, or else in the PATH."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=_release)
    found = str(debian[-1]) if debian else shutil.which("initdb")
    return Path(found).resolve().parent if found else None


def _release(program: Path) -> float:
    return float(program.parts[-3])


def version(programs: Path) -> str:
    """The version, such as `15.8`."""
    command = [str(programs / "postgres"), "--version"]
    told: str = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return told.split()[2]


@contextmanager
def cluster(programs: Path) -> Iterator[str]:
    """Run a PostgreSQL for the block. Yields the folder of its socket, the only way to connect; the
    user is USER, without a password.

    The server runs as the present user, or as `postgres` if that is root, because it refuses to run
    as root. Raises RuntimeError if it does not start.
    """
    user = "postgres" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="zkplan-pg-") as folder:
        if user is not None:
            shutil.chown(folder, user, user)
        data = Path(folder, "data")
        initdb = [str(programs / "initdb"), "-D", str(data), "-U", USER, "--auth=trust"]
        made = subprocess.run(
            initdb, capture_output=True, text=True, check=False, user=user, group=user, cwd=folder
        )
        if made.returncode:
            raise RuntimeError(f"initdb: {made.stderr}")
        place = ("-D", str(data), "-k", folder, "-c", "listen_addresses=")
        server = [str(programs / "postgres"), *place]
        log = Path(folder, "log")
        with (
            log.open("w") as output,
            subprocess.Popen(
                server, stdout=output, stderr=output, user=user, group=user, cwd=folder
            ) as process,
        ):
            try:
                _wait_ready(programs, folder, process, log)
                yield folder
            finally:
                process.send_signal(2)  # the server breaks connections, and writes a checkpoint


def _wait_ready(programs: Path, folder: str, process: subprocess.Popen[bytes], log: Path) -> None:
    ask = [str(programs / "pg_isready"), "-q", "-h", folder]
    deadline = time.monotonic() + _START_TIMEOUT_S
    while subprocess.run(ask, check=False).returncode:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"PostgreSQL does not start: {log.read_text()}")
        time.sleep(0.05)
