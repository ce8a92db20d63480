"""Examine a server for `zkplan config check` and `zkplan root`: status, speed, access lists."""

from __future__ import annotations

import contextlib
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException, NoAuthError, NoNodeError
from kazoo.security import CREATOR_ALL_ACL, Permissions

from .access import MISMATCH, connected, names_of
from .transport import Transport

#: The `verify_code` of OpenSSL for a certificate that has expired, or is not valid yet.
_EXPIRED, _TOO_EARLY = 10, 9
_NOTHING: Mapping[str, str] = {}
_WORD, _ANSWER_BYTES = b"srvr", 65_536


class Reached(NamedTuple):
    """The state of one server.

    `problem` says why it cannot be used, `todo` what to do; both are empty if it can. `facts` is
    its answer to `srvr`, by heading; empty if it does not answer that.
    """

    address: str
    problem: str = ""
    todo: str = ""
    facts: Mapping[str, str] = _NOTHING


def reach(
    host: str, port: int, context: ssl.SSLContext | None, server_name: str, timeout_s: float
) -> Reached:
    """Connect to one server as a client does, and ask for its status."""
    shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    name = server_name or host
    try:
        if context is None:
            raw = socket.create_connection((host, port), timeout_s)
        else:
            raw = connected(context, (host, port), name, timeout_s)
        with raw:
            facts = _status(raw)
        if context is None and not facts and _speaks_tls(host, port, timeout_s):
            return Reached(
                shown,
                "the port speaks TLS, and this connection does not",
                "set tls.ca to the file of the authority that signs the servers' certificates",
            )
        return Reached(shown, facts=facts)
    except socket.gaierror:
        return Reached(shown, f"no address is known for {host}", "correct the name in `hosts`")
    except ssl.SSLCertVerificationError as error:
        named = _certificate_names(context, host, port, name, timeout_s)
        return Reached(shown, *_certificate_problem(error, name, named))
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).replace("_", " ").lower()
        if "alert" in reason and "certificate" in reason:
            return Reached(
                shown,
                f"it does not take the certificate of this client, or wants one ({reason})",
                "set tls.certificate to one that an authority of the server's trust store has "
                "signed",
            )
        return Reached(
            shown,
            f"there is no TLS with it ({reason})",
            "does `hosts` name the port for TLS (secureClientPort)? If the server has no TLS, "
            "remove the tls fields",
        )
    except TimeoutError:
        return Reached(
            shown,
            f"nothing answers within {timeout_s:g} s",
            "is the machine running, and does a firewall let this one through?",
        )
    except OSError as error:
        return Reached(
            shown,
            f"it takes no connection ({error.strerror or error})",
            "is the server running, and is the port right?",
        )


def _certificate_problem(
    error: ssl.SSLCertVerificationError, name: str, named: str
) -> tuple[str, str]:
    if error.verify_code in MISMATCH:
        return (
            f"its certificate is for {named}, not for {name}",
            "write one of these names into `hosts` or `tls.server-name`, or give the server a "
            "certificate for this one",
        )
    if error.verify_code in (_EXPIRED, _TOO_EARLY):
        when = "has expired" if error.verify_code == _EXPIRED else "is not valid yet"
        return (
            f"its certificate {when}",
            "give the server a new certificate; or is the clock of this machine wrong?",
        )
    return (
        f"its certificate is not signed by an authority of tls.ca ({error.verify_message})",
        "set tls.ca to the file of the authority that signs the servers' certificates",
    )


def _certificate_names(
    context: ssl.SSLContext | None, host: str, port: int, name: str, timeout_s: float
) -> str:
    if context is None:
        return ""
    checks, context.check_hostname = context.check_hostname, False
    try:
        with connected(context, (host, port), name, timeout_s) as connection:
            return names_of(connection.getpeercert())
    except OSError:  # the certificate has another problem, too
        return "other hosts"
    finally:
        context.check_hostname = checks


def _speaks_tls(host: str, port: int, timeout_s: float) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        connected(context, (host, port), host, timeout_s).close()
    except ssl.SSLError as error:
        # A server that requires a certificate of the client says so with TLS.
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
    return True


def _status(connection: socket.socket) -> dict[str, str]:
    """The answer to the four-letter word `srvr`, by heading; a server may have it disabled."""
    answer = b""
    with contextlib.suppress(OSError):
        connection.sendall(_WORD)
        while len(answer) < _ANSWER_BYTES and (part := connection.recv(4096)):
            answer += part
    text = answer.decode(errors="replace")
    lines = (line.partition(": ") for line in text.splitlines())
    facts = {heading: value for heading, colon, value in lines if colon}
    if "not currently serving" in text:
        facts["Mode"] = "not serving"
    return facts


# ---- Requests that no step of the protocol makes: who may do what, how large, how fast.


class Refusal(Enum):
    """Why a request was not executed."""

    NO_AUTH = "an access list forbids it"
    NO_NODE = "there is no such znode"
    INVALID_ACL = "the server does not take the access list"
    LOGIN = "the server refused the login"
    LOST = "the server closed the connection"
    OTHER = "the server refused it"


_REFUSALS = (
    (exceptions.NoAuthError, Refusal.NO_AUTH),
    (exceptions.NoNodeError, Refusal.NO_NODE),
    (exceptions.InvalidACLError, Refusal.INVALID_ACL),
    (exceptions.AuthFailedError, Refusal.LOGIN),
    (exceptions.ConnectionLoss, Refusal.LOST),
    (exceptions.SessionExpiredError, Refusal.LOST),
    (exceptions.ConnectionClosedError, Refusal.LOST),
)


class Made(NamedTuple):
    """A created znode, and when that was, in seconds by two clocks."""

    path: str
    server_time: float
    #: The time here halfway between request and answer, and half of that interval.
    own_time: float
    half_s: float


class Probe:
    """Sends requests over one connected client. Each answer may be a Refusal."""

    def __init__(self, client: KazooClient, timeout_s: float) -> None:
        self._client, self._timeout_s = client, timeout_s

    def children(self, path: str) -> list[str] | Refusal:
        found: list[str] | Refusal = self._asked(lambda: self._client.get_children_async(path))
        return found

    def create(self, parent: str) -> Made | Refusal:
        """Create an ephemeral znode below `parent`."""
        path = f"{parent.rstrip('/')}/zkplan-check-{secrets.token_hex(6)}"
        began = time.time()
        made = self._asked(
            lambda: self._client.create_async(path, b"", ephemeral=True, include_data=True)
        )
        half_s = (time.time() - began) / 2
        if isinstance(made, Refusal):
            return made
        return Made(path, made[1].ctime / 1000, began + half_s, half_s)

    def write_s(self, path: str) -> float | Refusal:
        """Measure a small write, in seconds."""
        return self._timed(lambda: self._client.set_async(path, b"x"))

    def read_s(self, path: str) -> float | Refusal:
        return self._timed(lambda: self._client.exists_async(path))

    def takes(self, path: str, size: int) -> bool:
        """Whether the server accepts a write of `size` bytes. If not, it closes the connection."""
        return not isinstance(
            self._asked(lambda: self._client.set_async(path, bytes(size))), Refusal
        )

    def wait_connected(self) -> bool:
        deadline = time.monotonic() + self._timeout_s
        while not self._client.connected and time.monotonic() < deadline:
            time.sleep(0.02)
        return bool(self._client.connected)

    def _timed(self, ask: Callable[[], Any]) -> float | Refusal:
        began = time.monotonic()
        found = self._asked(ask)
        return found if isinstance(found, Refusal) else time.monotonic() - began

    def _asked(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask().get(timeout=self._timeout_s)
        except self._client.handler.timeout_exception:
            return Refusal.LOST
        except exceptions.KazooException as error:
            return next((why for kind, why in _REFUSALS if isinstance(error, kind)), Refusal.OTHER)


# ---- Access lists of znodes: show what a client without a login may do, and close what is open.


#: The rights of ZooKeeper, each with its bit.
RIGHTS = {
    "read": Permissions.READ,
    "write": Permissions.WRITE,
    "create": Permissions.CREATE,
    "delete": Permissions.DELETE,
    "admin": Permissions.ADMIN,
}
#: Schemes without a login: everybody, and everybody at an address.
_OF_OUTSIDERS = ("world", "ip")
_IN_FLIGHT = 500
_ANSWER_S = 30.0


class AccessList(NamedTuple):
    """The list of one znode. `open_to` are the rights of clients without a login, as bits."""

    path: str
    #: Each login as `scheme:id`, without a hash of its password, and its bits.
    logins: tuple[tuple[str, int], ...]
    open_to: int
    version: int


def access_lists(transport: Transport, root: str) -> Iterator[tuple[str, AccessList | None]]:
    """The list of each znode at and below `root`, parents first; None if it may not be read.

    Znodes that are created or deleted meanwhile may be missing.
    """
    client, waiting = transport.client, [root]
    while waiting:
        paths = [waiting.pop() for _ in range(min(_IN_FLIGHT, len(waiting)))]
        lists = [client.get_acls_async(path) for path in paths]
        children = [client.get_children_async(path) for path in paths]
        for path, found, names in zip(paths, lists, children, strict=True):
            try:
                yield path, _read(path, found)
                waiting += [f"{path}/{name}" for name in names.get(timeout=_ANSWER_S)]
            except NoNodeError:
                pass
            except NoAuthError:
                yield path, None


def open_rights(transport: Transport, path: str) -> int | None:
    """The rights of a client without a login on that znode; None if that cannot be read."""
    try:
        return _read(path, transport.client.get_acls_async(path)).open_to
    except (KazooException, transport.client.handler.timeout_exception):
        return None


def close_each(transport: Transport, found: Iterable[AccessList]) -> tuple[int, list[str]]:
    """Give these znodes the access list of znodes that this client creates.

    Returns how many were changed, and the paths of those that this client may not change. A list
    that changes meanwhile is left for the next pass.
    """
    client: KazooClient = transport.client
    wanted = client.default_acl or CREATOR_ALL_ACL
    closed, refused = 0, []
    sent = [(one.path, client.set_acls_async(one.path, wanted, one.version)) for one in found]
    for path, answer in sent:
        try:
            answer.get(timeout=_ANSWER_S)
            closed += 1
        except (NoNodeError, BadVersionError):
            pass
        except NoAuthError:
            refused.append(path)
    return closed, refused


def granted_to_outsiders(transport: Transport) -> int:
    """The rights that the explicit list of this client gives to clients without a login."""
    return _open_to(transport.client.default_acl or ())


def _read(path: str, answer: Any) -> AccessList:
    entries, stat = answer.get(timeout=_ANSWER_S)
    logins: dict[str, int] = {}
    for entry in entries:
        if entry.id.scheme not in _OF_OUTSIDERS:
            # What follows a digest's colon is a hash of the password.
            name = f"{entry.id.scheme}:{entry.id.id.partition(':')[0]}"
            logins[name] = logins.get(name, 0) | entry.perms
    return AccessList(path, tuple(logins.items()), _open_to(entries), stat.aversion)


def _open_to(entries: Iterable[Any]) -> int:
    bits = 0
    for entry in entries:
        if entry.id.scheme in _OF_OUTSIDERS:
            bits |= entry.perms
    return bits
