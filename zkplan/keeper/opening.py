"""Opening a connection: kazoo's options as measured to be right, and one clear error."""

from __future__ import annotations

import inspect
import logging
import select
import time
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    ConnectionDropped,
    MarshallingError,
    OperationTimeoutError,
    RequestTimeoutError,
    SystemZookeeperError,
    ThrottledOpError,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KeeperState

from ..errors import KeeperUnavailable, ZkplanError
from .calls import Call
from .core import Keeper
from .history import HistoryWatch

#: What kazoo says about connections; zkplan tells by itself what a user must know. Without a
#: handler, Python would print its warnings in programs that never set up logging.
logger = logging.getLogger("zkplan.kazoo")
logger.addHandler(logging.NullHandler())

#: Answers that say something of the server, and nothing of the request.
_SERVER_FAILED = frozenset(
    error.code
    for error in (
        MarshallingError,
        OperationTimeoutError,
        RequestTimeoutError,
        SystemZookeeperError,
        ThrottledOpError,
    )
)
#: So often a request is sent again after such an answer: there may be something wrong with it.
_STUMBLES_MAX = 3

#: Options of KazooClient that are given by other names.
_OURS = ("self", "hosts", "timeout", "kwargs")
#: Those that a second client cannot share; a server that only reads would tell it of the past.
_NOT_OF_PROBES = (
    *("client_id", "handler", "connection_retry", "command_retry", "read_only", "logger"),
)


class _Overheard(logging.LoggerAdapter):  # type: ignore[type-arg]
    """Passes on what kazoo says, and remembers its last complaint: kazoo tells it to nobody else.

    A refused connection, a name without an address, a certificate that is not trusted.
    """

    complaint = ""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        super().log(level, msg, *args, **kwargs)
        # Of its giving up it tells when it is closed, which says nothing of the reason.
        if level >= logging.WARNING and not str(msg).startswith("Failed connecting"):
            self.complaint = str(msg) % args if args else str(msg)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, with a cheaper wait.

    kazoo makes, fills and closes an epoll for each wait, about five for each round trip. A poll
    object costs no system call: the hop of a chain takes a fifth less.
    """

    def select(
        self, rlist: Sequence[Any], wlist: Sequence[Any], xlist: Sequence[Any], timeout: Any = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        poller = select.poll()
        for item in rlist:
            poller.register(item, select.POLLIN)
        for item in wlist:
            poller.register(item, select.POLLOUT)
        ready = {fd for fd, _ in poller.poll(None if timeout is None else timeout * 1000)}
        # A hang-up or an error counts as ready, so that kazoo's next call meets it.
        readable = [item for item in rlist if item.fileno() in ready]
        return readable, [item for item in wlist if item.fileno() in ready], []


def open_keeper(
    hosts: str | KazooClient,
    *,
    session_timeout_s: float = 10.0,
    connect_timeout_s: float = 10.0,
    patience_s: float | None = 30.0,
    **kazoo_options: Any,
) -> Keeper:
    """Connect to ZooKeeper, or take a started KazooClient, which stays the caller's.

    `kazoo_options` go to KazooClient (auth_data, use_ssl, default_acl, …). Raises KeeperUnavailable
    when no server answers in time, ZkplanError for a malformed list of hosts, TypeError for hosts
    of another kind and for unknown options.
    """
    _check_options(kazoo_options, given=isinstance(hosts, KazooClient))
    if isinstance(hosts, KazooClient):
        _survive_bad_answers(hosts)
        _outlive_errors(hosts)
        return Keeper(hosts, owns=False, patience_s=patience_s)
    if not isinstance(hosts, str):
        raise TypeError(
            "hosts must be a text such as '127.0.0.1:2181' (several with commas between) or "
            f"'embedded:', or a started KazooClient, not {hosts!r:.100}"
        )
    _check_hosts(hosts)
    overheard = _Overheard(kazoo_options.get("logger") or logger, {})
    options: dict[str, Any] = {
        "connection_retry": {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1},
    }
    if hasattr(select, "poll"):
        options["handler"] = _Handler()
    try:
        client = KazooClient(
            hosts, timeout=session_timeout_s, **(options | kazoo_options | {"logger": overheard})
        )
    except ValueError as error:
        raise _malformed(hosts, str(error)) from error
    _survive_bad_answers(client)
    _outlive_errors(client)
    if not _started(client, connect_timeout_s):
        why = f" ({overheard.complaint})" if overheard.complaint else ""
        raise KeeperUnavailable(
            f"no ZooKeeper answered at {hosts} within {connect_timeout_s:g} s{why}; is it running, "
            "and is the address right?"
        )
    keeper = Keeper(client, owns=True, patience_s=patience_s)
    alike = {name: given for name, given in kazoo_options.items() if name not in _NOT_OF_PROBES}
    HistoryWatch(keeper, lambda now: _probe(now, session_timeout_s, alike))
    return keeper


def _started(client: KazooClient, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            client.start(timeout=max(0.0, deadline - time.monotonic()))
            return True
        except client.handler.timeout_exception:
            # At once where a connection was there and is lost again, as while a leader is elected.
            if time.monotonic() >= deadline:
                client.close()
                return False


def _survive_bad_answers(client: KazooClient) -> None:
    """Drop the connection where a server leaves out an answer, or fails at a request.

    A member of an ensemble may leave one out when it has lost its leader: kazoo's thread would end
    by the next answer, whose number is another one than expected, and the client would never
    connect again. Over a request at the wrong moment a leader may stumble (seen: MarshallingError
    for a commit while sessions ended). Whether it is applied nobody says: so it is sent again as
    one whose answer was lost, with all that were sent behind it, in their order.
    """
    connection = client._connection
    read = connection._read_response

    def read_or_drop(header: Any, *rest: Any) -> Any:
        pending = client._pending  # another one in each session
        if not pending or header.xid != pending[0][2]:
            raise ConnectionDropped(f"answer {header.xid} came before the one to an older request")
        call = pending[0][1]
        if header.err in _SERVER_FAILED and type(call) is Call and call.stumbles < _STUMBLES_MAX:
            call.stumbles += 1
            raise ConnectionDropped(f"a server failed at a request ({header.err})")
        return read(header, *rest)

    connection._read_response = read_or_drop


def _outlive_errors(client: KazooClient) -> None:
    """Make a new connection where kazoo's thread meets an error that it does not know.

    It would end by a MemoryError, say, which passes; nobody notices, and the client would wait for
    ever. What was under way counts as lost answers, also what kazoo had in its hands just then: it
    takes a request from one list before it puts it into the other, and an answered one from both.
    """
    connection = client._connection
    attempt, send, read = (
        connection._connect_attempt,
        connection._send_request,
        connection._read_response,
    )

    def send_or_keep(*given: Any) -> None:
        queue = client._queue
        first = queue[0] if queue else None
        try:
            send(*given)
        except Exception:
            if first is not None and not (queue and queue[0] is first):
                client._pending.append((*first, 0))
            raise

    def read_or_keep(*given: Any) -> Any:
        pending = client._pending
        first = pending[0] if pending else None
        try:
            return read(*given)
        except Exception:
            is_there = bool(pending) and pending[0] is first
            if first is not None and not is_there and not _is_told(first[1]):
                pending.appendleft(first)
            raise

    def attempt_or_drop(*given: Any) -> Any:
        try:
            return attempt(*given)
        except Exception as error:
            logger.warning("the connection is made anew after an error of this process: %r", error)
            if client._state != KeeperState.CONNECTING:
                client._session_callback(KeeperState.CONNECTING)
            return None

    connection._connect_attempt = attempt_or_drop
    connection._send_request, connection._read_response = send_or_keep, read_or_keep
    # Of a client that was given the first connection is in the attempt of before.
    for name in ("_send_request", "_read_socket", "_send_ping"):
        setattr(connection, name, _or_drop(getattr(connection, name)))


def _or_drop(step: Callable[..., Any]) -> Callable[..., Any]:
    """A step of kazoo's loop, after which the connection is dropped where it lacked memory."""

    def or_drop(*given: Any) -> Any:
        try:
            return step(*given)
        except MemoryError as error:
            raise ConnectionDropped("this process lacks memory") from error

    return or_drop


def _is_told(call: Any) -> bool:
    """Whether who waits for that answer has it; others who share the client use kazoo's own."""
    return call is None or bool(call.told if type(call) is Call else call.ready())


def _probe(hosts: str, session_timeout_s: float, options: dict[str, Any]) -> KazooClient:
    """A client that asks one question."""
    handler = {"handler": _Handler()} if hasattr(select, "poll") else {}
    return KazooClient(hosts, timeout=session_timeout_s, logger=logger, **handler, **options)


def _check_options(options: dict[str, Any], given: bool) -> None:
    """Before anything is opened: kazoo would tell of them only after a time-out, if at all."""
    known = [name for name in inspect.signature(KazooClient).parameters if name not in _OURS]
    unknown = sorted(set(options) if given else set(options).difference(known))
    if unknown and given:
        raise TypeError(f"{', '.join(unknown)}: set it on the KazooClient that is given as hosts")
    if unknown:
        raise TypeError(
            f"connect() has no option named {', '.join(unknown)}; besides its own it takes those "
            f"of KazooClient: {', '.join(known)}"
        )


def _check_hosts(hosts: str) -> None:
    addresses, _, chroot = hosts.partition("/")
    for address in addresses.split(","):
        try:
            parts = urllib.parse.urlsplit(f"zookeeper://{address.strip()}")
            if not parts.hostname or parts.port == 0 or "@" in address:
                raise _malformed(hosts, f"{address!r} is no host:port")
        except ValueError as error:  # of urlsplit, or of a port that is no number
            raise _malformed(hosts, str(error)) from None
    if chroot and not all(chroot.rstrip("/").split("/")):
        raise _malformed(hosts, f"the chroot {'/' + chroot!r} has an empty part")


def _malformed(hosts: str, why: str) -> ZkplanError:
    return ZkplanError(
        f"{hosts!r} is not a list of ZooKeeper hosts ({why}); write host:port, several with commas "
        "between, and a chroot after the last: zk1:2181,zk2:2181/team"
    )
