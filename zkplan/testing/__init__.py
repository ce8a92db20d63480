"""Tools for tests that need a ZooKeeper: servers on loopback, pytest fixtures, planned crashes.

Use these only for tests and demonstrations. In production, run an ensemble. This file needs only
the standard library, because `dev.py` loads it before anything is installed.
"""

from __future__ import annotations

import importlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .crashes import CrashReport, Difference, Step, crash_at_every_step
    from .server_process import EmbeddedServerProcess, ServerDidNotStart
    from .servers import ZooKeeperEnsemble, ZooKeeperServer

__all__ = [
    "CrashReport",
    "Difference",
    "EmbeddedServerProcess",
    "ServerDidNotStart",
    "Step",
    "ZooKeeperEnsemble",
    "ZooKeeperServer",
    "crash_at_every_step",
    "find_zookeeper",
]
#: The names of each module. A module is loaded when one of its names is first used.
_HOMES = {
    "crashes": ("CrashReport", "Difference", "Step", "crash_at_every_step"),
    "server_process": ("EmbeddedServerProcess", "ServerDidNotStart"),
    "servers": ("ZooKeeperEnsemble", "ZooKeeperServer"),
}


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# ---- Find Java and the jars of ZooKeeper on this machine.


NO_JAVA = (
    "no ZooKeeper can be started here: install libzookeeper-java and default-jre-headless "
    "(Debian, Ubuntu), or install Java and set ZOOKEEPER_HOME to an unpacked release"
)
#: Where Debian and Ubuntu put the jars of the package libzookeeper-java.
_DEBIAN_JARS = Path("/usr/share/java")
#: The manifest of Debian's zookeeper.jar names the other jars that it needs, except a logger and
#: the codecs of Netty, which TLS needs.
_DEBIAN_NAMES = ("zookeeper.jar", "slf4j-simple.jar", "netty-codec.jar")


def find_java() -> str | None:
    """Return the path of `java`, preferably from JAVA_HOME; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    if home and os.access(Path(home) / "bin" / "java", os.X_OK):
        return str(Path(home) / "bin" / "java")
    return shutil.which("java")


def find_zookeeper() -> list[str] | None:
    """Return the class path of a ZooKeeper server; None if Java or the jars are missing.

    ZOOKEEPER_HOME (an unpacked release of Apache) takes precedence over Debian's package. Raises
    FileNotFoundError if ZOOKEEPER_HOME names a folder without a release, instead of silently using
    another version.
    """
    if find_java() is None:
        return None
    home = os.environ.get("ZOOKEEPER_HOME")
    if home:
        if not any(Path(home, "lib").glob("zookeeper*.jar")):
            raise FileNotFoundError(
                f"ZOOKEEPER_HOME={home} has no lib/zookeeper*.jar: set it to the folder of an "
                "unpacked ZooKeeper release, or unset it to use Debian's package"
            )
        # `conf` has the logging configuration, without which logback logs everything.
        return [str(Path(home, "conf")), str(Path(home, "lib", "*"))]
    if not (_DEBIAN_JARS / "zookeeper.jar").exists():
        return None
    return [str(jar) for name in _DEBIAN_NAMES if (jar := _DEBIAN_JARS / name).exists()]
