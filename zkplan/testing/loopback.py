"""Free ports of the loopback address, and facts about a ZooKeeper server there."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import socket
from contextlib import ExitStack, suppress
from functools import cache

from ..basics.own_files import PRIVATE_FOLDER, open_closed_folder, open_own, own_folders

LOOPBACK = "127.0.0.1"
# Below the ports that the system gives to clients (32768 and up on Linux): a client that reconnects
# to a port of that range while the server is down can connect to itself and so keep the port.
_PORTS = range(20_000, 32_000)

_given_ports: set[int] = set()


def free_port() -> int:
    """A loopback port nobody listens on, outside the range of client ports, given out once only.

    Not to other processes of this user and temporary folder either, while this one lives: the port
    of a server that was killed and is started again would be theirs meanwhile.
    """
    # Not the shared generator: a test that seeds it would choose the same ports in two processes.
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        if port not in _given_ports and _claim(port) and is_free(port):
            _given_ports.add(port)
            return port
    raise OSError(f"no free port from {_PORTS.start} to {_PORTS.stop} on {LOOPBACK}")


def _claim(port: int) -> bool:
    """Lock the byte of that number in a file that all share; False where another process has.

    A courtesy: where there is no such file, or no locks, whether somebody listens has to do.
    """
    claims = _claims()
    if claims is None:
        return True
    try:
        fcntl.lockf(claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError as error:
        return error.errno not in (errno.EACCES, errno.EAGAIN)
    return True


@cache
def _claims() -> int | None:
    """The file, open until this process ends, which gives up its locks; None where it cannot be."""
    for folder in reversed([*own_folders("ports")]):  # all share that of the temporary files
        with suppress(OSError), ExitStack() as opened:
            folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
            within = open_closed_folder(folder)
            opened.callback(os.close, within)
            claims = open_own("claimed", os.O_RDWR | os.O_CREAT, within=within)
            os.utime(claims)  # nobody writes into it, and who tidies the folder goes by its age
            return claims
    return None


def is_free(port: int) -> bool:
    """Whether nobody listens on that loopback port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def server_status(host: str, timeout_s: float = 1.0) -> dict[str, str]:
    """What the four-letter word `srvr` of `host:port` says, by heading; empty without an answer.

    A server that has no quorum, or that locks the word, gives no headings.
    """
    answer = _ask(host, b"srvr", timeout_s).decode(errors="replace")
    lines = (line.partition(": ") for line in answer.splitlines())
    return {heading: value for heading, colon, value in lines if colon}


def is_serving(host: str, timeout_s: float = 1.0) -> bool:
    """Whether a server at `host:port` says so; one without a quorum may say so, too."""
    return _ask(host, b"ruok", timeout_s) == b"imok"


def _ask(host: str, word: bytes, timeout_s: float) -> bytes:
    """The answer to a four-letter word; empty without one."""
    address, _, port = host.strip().rpartition(":")
    try:
        with socket.create_connection((address.strip("[]"), int(port)), timeout_s) as connection:
            connection.sendall(word)
            return b"".join(iter(lambda: connection.recv(4096), b""))
    except (OSError, ValueError):
        return b""


def server_version(hosts: str) -> str:
    """The version of the first server of a connection string that tells it, else `unknown`."""
    for host in hosts.partition("/")[0].split(","):
        banner = server_status(host).get("Zookeeper version", "")
        if banner:
            return banner.partition("-")[0]
    return "unknown"
