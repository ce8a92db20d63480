"""The four-letter words: requests of administrators and tools, without a session.

The answers have the form of a real server 3.8, because tools parse them. They also name the version
3.8, because this server behaves like it; `envi` tells that this is the embedded server.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from typing import Protocol

from zkplan.embedded.limits import Settings
from zkplan.embedded.service import Service
from zkplan.embedded.sessions import Sessions
from zkplan.embedded.tree import Tree

from .sessions import Peer

VERSION = "3.8.0-zkplan, built on 2026-11-20 00:00 UTC"


class Traffic:
    """The number of frames sent, and how long requests took, in milliseconds."""

    def __init__(self) -> None:
        self.sent = 0
        self.min_ms = 0.0
        self.max_ms = 0.0
        self.sum_ms = 0.0
        self.timed = 0

    def took(self, latency_ms: float, requests: int) -> None:
        """Count a group of `requests`, answered `latency_ms` after the first one arrived."""
        if not self.timed or latency_ms < self.min_ms:
            self.min_ms = latency_ms
        self.max_ms = max(self.max_ms, latency_ms)
        self.sum_ms += latency_ms * requests
        self.timed += requests

    def __str__(self) -> str:
        average = self.sum_ms / self.timed if self.timed else 0.0
        return f"{self.min_ms:.0f}/{average:.1f}/{self.max_ms:.0f}"


class Subject(Protocol):
    """The parts of a running server that the words read."""

    tree: Tree
    sessions: Sessions
    service: Service
    traffic: Traffic
    settings: Settings
    port: int

    def peers(self) -> list[Peer]: ...


def answer_word(word: bytes, server: Subject) -> bytes | None:
    """The answer to `word`; None if there is no such word."""
    answer = _ANSWERS.get(word)
    return None if answer is None else answer(server).encode()


def answer_stranger(word: bytes, server: Subject) -> bytes | None:
    """The answer of a server that needs a login: a word has none, so it tells only that the server
    lives, and its version. kazoo's `server_version()` reads that from `envi`, others from `srvr`.

    None if there is no such word.
    """
    if word in _OF_STRANGERS:
        return _OF_STRANGERS[word](server).encode()
    if word in _ANSWERS:
        return f"{word.decode()} is not executed because it is not in the whitelist.\n".encode()
    return None


def _version_in_srvr(_: Subject) -> str:
    return f"Zookeeper version: {VERSION}\n"


def _version_in_envi(_: Subject) -> str:
    return f"Environment:\nzookeeper.version={VERSION}\n"


def _srvr(server: Subject) -> str:
    return _version_in_srvr(server) + _status(server)


def _stat(server: Subject) -> str:
    clients = "\n".join(f"{_client(peer)})" for peer in server.peers())
    return f"{_version_in_srvr(server)}Clients:\n{clients}\n\n{_status(server)}"


def _status(server: Subject) -> str:
    return (
        f"Latency min/avg/max: {server.traffic}\n"
        f"Received: {server.service.received}\n"
        f"Sent: {server.traffic.sent}\n"
        f"Connections: {len(server.peers())}\n"
        f"Outstanding: 0\n"
        f"Zxid: {server.tree.zxid:#x}\n"
        f"Mode: standalone\n"
        f"Node count: {server.tree.node_count}\n"
    )


def _mntr(server: Subject) -> str:
    _, _, watches = server.tree.watches.counts()
    traffic = server.traffic
    low, average, high = str(traffic).split("/")
    values = {
        "zk_version": VERSION,
        "zk_server_state": "standalone",
        "zk_min_latency": low,
        "zk_avg_latency": average,
        "zk_max_latency": high,
        "zk_packets_received": server.service.received,
        "zk_packets_sent": traffic.sent,
        "zk_num_alive_connections": len(server.peers()),
        "zk_outstanding_requests": 0,
        "zk_znode_count": server.tree.node_count,
        "zk_watch_count": watches,
        "zk_ephemerals_count": server.tree.ephemeral_count,
        "zk_approximate_data_size": server.tree.znodes.bytes,
        "zk_global_sessions": len(server.sessions),
        "zk_open_file_descriptor_count": _open_files(),
    }
    return "".join(f"{name}\t{value}\n" for name, value in values.items())


def _cons(server: Subject) -> str:
    return "\n".join(f"{_client(peer)}{_session(peer)})" for peer in server.peers()) + "\n\n"


def _client(peer: Peer) -> str:
    return f" /{peer.address}:{peer.port}[1](queued=0,recved={peer.received},sent={peer.sent}"


def _session(peer: Peer) -> str:
    session = peer.session
    if session is None:
        return ""
    return f",sid={session.id:#x},lop={peer.last_request},to={session.timeout_ms}"


def _conf(server: Subject) -> str:
    settings = server.settings
    return (
        f"clientPort={server.port}\n"
        f"dataDir={settings.data or ''}\n"
        f"tickTime={settings.tick_time_ms}\n"
        f"maxClientCnxns={settings.limits.connections}\n"
        f"minSessionTimeout={settings.min_session_timeout_ms}\n"
        f"maxSessionTimeout={settings.max_session_timeout_ms}\n"
        "serverId=0\n"
    )


def _dump(server: Subject) -> str:
    sessions = list(server.sessions)
    owned = {session.id: server.tree.ephemerals(session.id) for session in sessions}
    owned = {number: paths for number, paths in owned.items() if paths}
    return (
        f"SessionTracker dump:\nSessions ({len(sessions)}):\n"
        + "".join(f"\t{session.id:#x}\t{session.timeout_ms}ms\n" for session in sessions)
        + f"ephemeral nodes dump:\nSessions with Ephemerals ({len(owned)}):\n"
        + "".join(
            f"{number:#x}:\n" + "".join(f"\t{path}\n" for path in sorted(paths))
            for number, paths in owned.items()
        )
    )


def _wchs(server: Subject) -> str:
    connections, paths, watches = server.tree.watches.counts()
    return f"{connections} connections watching {paths} paths\nTotal watches:{watches}\n"


def _envi(server: Subject) -> str:
    values = {
        "server.kind": "zkplan embedded server",
        "host.name": platform.node(),
        "python.version": platform.python_version(),
        "os.name": platform.system(),
        "os.arch": platform.machine(),
        "os.version": platform.release(),
        "user.dir": _working_folder(),
        "python.executable": sys.executable,
    }
    return _version_in_envi(server) + "".join(f"{name}={value}\n" for name, value in values.items())


def _working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "?"  # deleted while the server works in it


def _open_files() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return -1  # as a real server answers if it cannot know


_Answers = dict[bytes, Callable[[Subject], str]]
_OF_STRANGERS: _Answers = {
    b"ruok": lambda _: "imok",
    b"isro": lambda _: "rw",
    b"srvr": _version_in_srvr,
    b"envi": _version_in_envi,
}
_ANSWERS: _Answers = _OF_STRANGERS | {
    b"srvr": _srvr,
    b"stat": _stat,
    b"mntr": _mntr,
    b"cons": _cons,
    b"conf": _conf,
    b"dump": _dump,
    b"wchs": _wchs,
    b"envi": _envi,
}
