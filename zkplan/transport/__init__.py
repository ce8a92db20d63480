"""Connect to ZooKeeper with kazoo, and notice when it was restored from an older state.

No other package connects or imports kazoo. `open_transport` makes a Transport, which runs steps.
"""

from __future__ import annotations

import _thread
import inspect
import os
import threading
import time
import urllib.parse
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient, KazooState

from ..basics.log import get_logger
from ..basics.text import without_login
from ..errors import ZkplanError, ZooKeeperUnavailable
from .access import log_in, speak_tls, tls_options
from .addresses import ServerAddress
from .kazoo_client import logger as kazoo_logger
from .kazoo_client import make_client, stop, why
from .kazoo_private import has_sasl, stopped
from .kazoo_repairs import repair
from .transport import Transport

__all__ = ["Transport", "open_transport"]

#: Parameters of KazooClient that are not options here, or have other names here.
_OURS = ("self", "hosts", "timeout", "check_hostname", "kwargs")
#: Options that a probe does not share. With `read_only`, it could see an old state.
_NOT_OF_PROBES = frozenset(
    ("client_id", "handler", "connection_retry", "command_retry", "read_only", "logger")
)


def open_transport(
    hosts: str | KazooClient,
    *,
    session_timeout_s: float = 10.0,
    connect_timeout_s: float = 10.0,
    patience_s: float | None = 30.0,
    verify_hostname: bool = True,
    server: ServerAddress | None = None,
    system_ca: bool = False,
    server_name: str = "",
    **kazoo_options: Any,
) -> Transport:
    """Connect to ZooKeeper, or use a started KazooClient, which the caller keeps and closes.

    `server` provides the login of a closed server of this user; each connection asks it again.

    `kazoo_options` go to KazooClient (auth_data, use_ssl, default_acl, …). Over TLS, `ca` must have
    signed the server's certificate, or with `system_ca` an authority of the system, and the
    certificate must name `server_name`, by default the host in `hosts`. Raises ZooKeeperUnavailable
    if no server answers in time, ZkplanError for a malformed list of hosts, InvalidSettings for
    files that cannot be used, and TypeError for hosts of another type and for options that are
    unknown or contradict each other.
    """
    if isinstance(hosts, KazooClient):
        ours = {"verify_hostname": not verify_hostname, "system_ca": system_ca}
        ours |= {"server_name": bool(server_name)}
        given = sorted([*kazoo_options, *(name for name, is_given in ours.items() if is_given)])
        if given:
            raise TypeError(f"{', '.join(given)}: set this on the KazooClient given as `hosts`")
        repair(hosts)
        logs_in = bool(hosts.auth_data) or has_sasl(hosts)
        return Transport(hosts, owns=False, patience_s=patience_s, logs_in=logs_in)
    if not isinstance(hosts, str):
        raise TypeError(
            "hosts must be a text such as '127.0.0.1:2181' (several with commas between) or "
            f"'embedded:', or a started KazooClient, not {hosts!r:.100}"
        )
    options = kazoo_options | tls_options(kazoo_options, verify_hostname, system_ca, server_name)
    _check_options(kazoo_options)
    _check_hosts(hosts)
    retry = {"connection_retry": {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1}}
    logs_to = kazoo_options.get("logger") or kazoo_logger
    try:
        client = make_client(hosts, session_timeout_s, retry | options, logs_to)
    except ValueError as error:
        raise _malformed(hosts, str(error)) from error
    speak_tls(client, system_ca, server_name)
    repair(client)
    if server is not None:
        log_in(client, server.login)
    if not _started(client, connect_timeout_s):
        raise ZooKeeperUnavailable(
            f"no ZooKeeper answered at {hosts} within {connect_timeout_s:g} s{why(client)}; is it "
            "running, and is the address right?"
        )
    # A server may not accept a certificate as a login. An access list shows that this one does.
    certificate = options.get("certfile") and options.get("default_acl")
    logs_in = bool(options.get("auth_data") or options.get("sasl_options") or certificate)
    transport = Transport(client, owns=True, patience_s=patience_s, logs_in=logs_in, server=server)
    shared = {name: given for name, given in options.items() if name not in _NOT_OF_PROBES}

    def probe(hosts_now: str) -> KazooClient:
        made = make_client(hosts_now, session_timeout_s, shared)
        speak_tls(made, system_ca, server_name)
        if server is not None:
            log_in(made, server.login)
        return made

    RollbackWatch(transport, probe)
    return transport


def _started(client: KazooClient, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            client.start(timeout=max(0.0, deadline - time.monotonic()))
            return True
        except client.handler.timeout_exception:
            # Before the deadline, this means a connection made and lost, as in a leader election.
            if time.monotonic() >= deadline:
                client.close()
                return False


def _check_options(given: dict[str, Any]) -> None:
    """Refuse unknown options at once: kazoo would report them after a time-out, or never."""
    known = [name for name in inspect.signature(KazooClient).parameters if name not in _OURS]
    unknown = sorted(set(given).difference(known))
    if unknown:
        raise TypeError(
            f"connect() has no option named {', '.join(unknown)}; it also takes the options of "
            f"KazooClient: {', '.join(known)}"
        )


def _check_hosts(hosts: str) -> None:
    addresses, _, chroot = hosts.partition("/")
    for address in addresses.split(","):
        try:
            parts = urllib.parse.urlsplit(f"zookeeper://{address.strip()}")
            if not parts.hostname or parts.port == 0 or "@" in address:
                raise _malformed(hosts, f"{without_login(address)!r} is not a host:port")
        except ValueError as error:  # from urlsplit, or for a port that is not a number
            # The text of `error` quotes the port, which may be part of a password here.
            why = f"{without_login(hosts)!r} is not a host:port" if "@" in hosts else str(error)
            raise _malformed(hosts, why) from None
    if chroot and not all(chroot.rstrip("/").split("/")):
        raise _malformed(hosts, f"the chroot {'/' + chroot!r} has an empty part")


def _malformed(hosts: str, why: str) -> ZkplanError:
    return ZkplanError(
        f"{without_login(hosts)!r} is not a list of ZooKeeper hosts ({why}); write host:port, "
        "several with commas between, and a chroot after the last: zk1:2181,zk2:2181/team"
    )


# ---- Notice that ZooKeeper was restored from an older state than this client has seen.
#
# If a client has seen a newer transaction than the server, the server closes the connection without
# an answer. The client would wait until the number of the server has caught up, and then go on with
# an old picture of its plans. So a client without a connection for a session time-out opens a
# second session. Opening a session is a transaction, with a larger number than all before it. If
# that number is smaller than one that this client has seen, transactions are lost. The client also
# checks this when a new session replaces an expired one.


#: The longest pause between checks. The first one is a session time-out; each later one doubles.
ASK_MAX_S = 60.0
_CONNECT_S = 5.0

logger = get_logger("zkplan.transport")


class RollbackWatch:
    """Ends a transport with ServerRolledBack. `probe(hosts)` makes the client to check with."""

    def __init__(self, transport: Transport, probe: Callable[[str], KazooClient]) -> None:
        self._transport, self._probe = transport, probe
        self._pid = os.getpid()
        self._lock = threading.Lock()
        #: Set when the connection is back; None while there is a connection.
        self._back: threading.Event | None = None
        #: The last transaction seen in any session: kazoo forgets it when a session expires.
        self._seen = 0
        transport.client.add_listener(self._changed)

    def _changed(self, state: str) -> None:
        # On kazoo's connection thread, which must not wait.
        client = self._transport.client
        with self._lock:
            # kazoo reports a lost session before it forgets the last transaction seen in it.
            last = client.last_zxid
            is_new_session = last < self._seen
            self._seen = max(last, self._seen)
            if state == KazooState.CONNECTED or stopped(client).is_set():
                if self._back is not None:
                    self._back.set()
                    self._back = None
                if is_new_session and state == KazooState.CONNECTED:
                    # A server that lost transactions refuses the old session, but not a new one.
                    self._start(self._check_until_answered)
            elif self._back is None and os.getpid() == self._pid:
                self._back = threading.Event()
                self._start(self._check_until_back, self._back)

    def _start(self, check: Callable[..., None], *given: threading.Event) -> None:
        # Not a Thread: if memory is short, the new thread may end at once, and `start` would wait
        # for it for ever, on kazoo's thread. Lack of memory may have broken the connection, too.
        _thread.start_new_thread(check, given)

    def _check_until_back(self, back: threading.Event) -> None:
        pause_s = self._transport.session_timeout_s
        while not back.wait(pause_s):
            pause_s = min(ASK_MAX_S, 2 * pause_s)
            if stopped(self._transport.client).is_set() or self._check():
                return

    def _check_until_answered(self) -> None:
        while self._check() is None:
            if stopped(self._transport.client).wait(self._transport.session_timeout_s):
                return

    def _check(self) -> bool | None:
        """End the transport if ZooKeeper was restored; return whether it was. None: no answer."""
        seen, now = self._seen, self._last_transaction()
        if now is None or now >= seen:
            return None if now is None else False
        self._transport.give_up(
            f"ZooKeeper at {self._transport.hosts} was restored from an older state: its last "
            f"transaction is {now:#x}, this process has seen {seen:#x}. What this process knows of "
            "plans is no longer true: restart this process"
        )
        return True

    def _last_transaction(self) -> int | None:
        """The number of a transaction that this call makes; None if no server answers."""
        try:
            probe = self._probe(self._transport.hosts)
            try:
                probe.start(timeout=_CONNECT_S)
                # A local session opens without a transaction, even on a follower that lags behind:
                # `sync` lets the follower catch up. This connection may break, too: time out.
                probe.sync_async("/").get(timeout=_CONNECT_S)
                probe.exists_async("/").get(timeout=_CONNECT_S)
                return int(probe.last_zxid)
            finally:
                stop(probe)
        except Exception as error:  # for example no descriptor or thread is left: try again later
            logger.debug("no answer to a new session either: %r", error)
            return None
