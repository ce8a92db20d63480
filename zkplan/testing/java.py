"""Find Java and the jars of ZooKeeper on this machine. `dev.py` loads this file before anything is
installed.

It imports only the standard library: `dev.py` loads this file before anything is installed.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

NO_JAVA = (
    "no ZooKeeper can be started here: install libzookeeper-java and default-jre-headless "
    "(Debian, Ubuntu), or install Java and set ZOOKEEPER_HOME to an unpacked release"
)
DEBIAN_JARS = Path("/usr/share/java")
"""Where Debian and Ubuntu put the jars of the package libzookeeper-java."""
#: Debian's zookeeper.jar names what it needs in its manifest, but a logger and Netty's codecs.
#: Without the latter it cannot speak TLS.
_DEBIAN_NAMES = ("zookeeper.jar", "slf4j-simple.jar", "netty-codec.jar")


def find_java() -> str | None:
    """Path of the `java` program, that of JAVA_HOME first; None where there is none."""
    home = os.environ.get("JAVA_HOME")
    if home and os.access(Path(home) / "bin" / "java", os.X_OK):
        return str(Path(home) / "bin" / "java")
    return shutil.which("java")


def find_zookeeper() -> list[str] | None:
    """The class path of a ZooKeeper server; None where Java or the jars are missing.

    ZOOKEEPER_HOME (an unpacked release of Apache) is taken first, then Debian's package. Raises
    FileNotFoundError where ZOOKEEPER_HOME names a folder without a release: another version than
    the one that was asked for is never taken silently.
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
        # `conf` has the logging configuration: without it logback logs everything.
        return [str(Path(home, "conf")), str(Path(home, "lib", "*"))]
    if not (DEBIAN_JARS / "zookeeper.jar").exists():
        return None
    return [str(DEBIAN_JARS / name) for name in _DEBIAN_NAMES if (DEBIAN_JARS / name).exists()]
