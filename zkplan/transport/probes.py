"""Examine servers for `zkplan config check` and `zkplan root`: status, speed, access lists."""

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

#: The values of OpenSSL's `verify_code` for a certificate that has expired, or is not valid yet.
_EXPIRED, _TOO_EARLY = 10, 9
_NOTHING: Mapping[str, str] = {}
_WORD, _ANSWER_BYTES = b"srvr", 65_536


class Reached(NamedTuple):
    """The state of one server.

    `problem` says why clients cannot use the server, and `todo` what to do; both are empty if they
    can. `facts` is the server's answer to `srvr`, by heading; empty without an answer.
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
        return Reached(shown, f"{host} has no known address", "correct the name in `hosts`")
    except ssl.SSLCertVerificationError as error:
        named = _certificate_names(context, host, port, name, timeout_s)
        return Reached(shown, *_certificate_problem(error, name, named))
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).replace("_", " ").lower()
        if "alert" in reason and "certificate" in reason:
            return Reached(
                shown,
                f"it requires a client certificate, or does not accept this one ({reason})",
                "set tls.certificate to a certificate signed by an authority that the server "
                "trusts",
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
            f"it accepts no connections ({error.strerror or error})",
            "is the server running, and is the port right?",
        )


def _certificate_problem(
    error: ssl.SSLCertVerificationError, name: str, named: str
) -> tuple[str, str]:
    if error.verify_code in MISMATCH:
        return (
            f"its certificate is for {named}, not for {name}",
            "write a name in the certificate into `hosts` or `tls.server-name`, or give the server "
            f"a certificate for {name}",
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
        # A server that requires a client certificate refuses with an alert of TLS.
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
    return True


def _status(connection: socket.socket) -> dict[str, str]:
    """The answer to the four-letter word `srvr`, by heading; empty if the word is disabled."""
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


# ---- Requests outside of the protocol, to learn who may do what, and the server's size and speed.


class Refusal(Enum):
    """Why a request was not executed."""

    NO_AUTH = "an access list forbids it"
    NO_NODE = "there is no such znode"
    INVALID_ACL = "the server does not accept the access list"
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
    """A created znode, and when it was created, in seconds by the server's clock and by ours."""

    path: str
    server_time: float
    #: The time by the clock here halfway between request and answer, and half of that interval.
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
        """Return how long a small write took, in seconds."""
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
#: Schemes that need no login: `world` matches everyone, `ip` everyone at an address.
_OF_OUTSIDERS = ("world", "ip")
_IN_FLIGHT = 500
_ANSWER_S = 30.0


class AccessList(NamedTuple):
    """The access list of one znode. `open_to`: the rights of clients without a login, as bits."""

    path: str
    #: Each login as `scheme:id`, without a hash of its password, and its rights as bits.
    logins: tuple[tuple[str, int], ...]
    open_to: int
    version: int


def access_lists(transport: Transport, root: str) -> Iterator[tuple[str, AccessList | None]]:
    """Yield each path at and below `root`, parents first, and the access list of that znode.

    The list is None if this client may not read it. Znodes that are created or deleted meanwhile
    may be missing.
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
    """The rights of a client without a login on a znode; None if its list cannot be read."""
    try:
        return _read(path, transport.client.get_acls_async(path)).open_to
    except (KazooException, transport.client.handler.timeout_exception):
        return None


def close_each(transport: Transport, found: Iterable[AccessList]) -> tuple[int, list[str]]:
    """Give the znodes of `found` the access list that this client gives to new znodes.

    Returns how many lists were changed, and the paths that this client may not change. A list that
    changes meanwhile is left for the next pass.
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
    """The rights that the access list set for this client gives to clients without a login."""
    return _open_to(transport.client.default_acl or ())


def _read(path: str, answer: Any) -> AccessList:
    entries, stat = answer.get(timeout=_ANSWER_S)
    logins: dict[str, int] = {}
    for entry in entries:
        if entry.id.scheme not in _OF_OUTSIDERS:
            # In the id of a digest, the hash of the password follows the colon.
            name = f"{entry.id.scheme}:{entry.id.id.partition(':')[0]}"
            logins[name] = logins.get(name, 0) | entry.perms
    return AccessList(path, tuple(logins.items()), _open_to(entries), stat.aversion)


def _open_to(entries: Iterable[Any]) -> int:
    bits = 0
    for entry in entries:
        if entry.id.scheme in _OF_OUTSIDERS:
            bits |= entry.perms
    return bits
