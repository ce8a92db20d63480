"""Log in and use TLS: kazoo's options for both, and a login that only this user's server gets."""

from __future__ import annotations

import importlib.util
import os
import socket
import ssl
import sys
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped
from kazoo.protocol.serialization import Auth
from kazoo.security import ACL, Id

from ..basics.settings import first_line_of
from ..basics.settings_fields import DIGEST, OPEN, SASL_GSSAPI, Settings, entries
from ..errors import InvalidSettings
from .kazoo_client import make_client
from .kazoo_private import LoopStep, wrap


def access_options(settings: Settings) -> dict[str, Any]:
    """Return the options of `open_transport` for these settings, besides hosts and times.

    Call `with_password` before. Raises InvalidSettings if a package is missing.
    """
    options: dict[str, Any] = {}
    if settings.login_type == DIGEST:
        options["auth_data"] = [("digest", f"{settings.login_user}:{settings.login_password}")]
    elif settings.login_type:
        options["sasl_options"] = _sasl(settings)
    wanted = entries(settings.access) if settings.access else [OPEN]
    if wanted != [OPEN]:
        options["default_acl"] = [ACL(rights, Id(scheme, name)) for rights, scheme, name in wanted]
    if settings.uses_tls:
        options |= {
            "use_ssl": True,
            "ca": settings.tls_ca or None,
            "system_ca": settings.tls_system_ca,
            "server_name": settings.tls_server_name,
            "verify_hostname": settings.tls_check_host_name,
        }
        if settings.tls_certificate:
            options["certfile"] = settings.tls_certificate
            options["keyfile"] = settings.tls_key or settings.tls_certificate
        if settings.tls_key_password_file:
            options["keyfile_password"] = first_line_of(
                settings.tls_key_password_file, "tls.key-password-file"
            )
    return options


def unstarted_client(settings: Settings) -> tuple[KazooClient, ssl.SSLContext | None]:
    """Return a client for these settings that is not started, and its context if it uses TLS.

    Call `with_password` before. Raises InvalidSettings, and ValueError for malformed hosts.
    """
    options = access_options(settings)
    system_ca, name = options.pop("system_ca", False), options.pop("server_name", "")
    checks = options.pop("verify_hostname", True)
    options |= tls_options(options, checks, system_ca, name)
    client = make_client(settings.hosts, settings.session_timeout, options)
    speak_tls(client, system_ca, name)
    return client, context_of(client, system_ca) if client.use_ssl else None


def _sasl(settings: Settings) -> dict[str, Any]:
    origin = settings.origins.get("login_type", "login.type")
    if importlib.util.find_spec("puresasl") is None:
        raise InvalidSettings(
            f"{origin}: {settings.login_type} needs the package pure-sasl: "
            "pip install 'zkplan[sasl]'"
        )
    service = {"service": settings.login_service or "zookeeper"}
    if settings.login_type == SASL_GSSAPI:
        if not any(map(importlib.util.find_spec, ("kerberos", "winkerberos"))):
            raise InvalidSettings(
                f"{origin}: {settings.login_type} needs the package kerberos: "
                "pip install 'zkplan[kerberos]'"
            )
        principal = {"principal": settings.login_principal} if settings.login_principal else {}
        return {"mechanism": "GSSAPI", **service, **principal}
    return {
        "mechanism": "DIGEST-MD5",
        **service,
        "username": settings.login_user,
        "password": settings.login_password,
    }


# ---- TLS: the certificate of a server must name the host that the client connects to.


#: The values of OpenSSL's `verify_code` for a host name, and for an IP address, that do not match.
MISMATCH = (62, 64)
_KINDS = ("DNS", "IP Address")


def tls_options(
    options: dict[str, Any], verify_hostname: bool, system_ca: bool, server_name: str
) -> dict[str, Any]:
    """Return options to add to kazoo's `options`, because kazoo checks no host name by default.

    Raises TypeError for options that disable the check without `verify_hostname=False`, for TLS
    without an authority to trust, and for options of TLS without TLS.
    """
    if "check_hostname" in options:
        raise TypeError(
            "check_hostname: TLS checks host names unless you give verify_hostname=False instead"
        )
    if not options.get("use_ssl"):
        if system_ca or server_name:
            raise TypeError("system_ca and server_name are for TLS: give use_ssl=True too")
        return {}
    verifies = options.get("verify_certs", True)
    if verify_hostname and not verifies:
        raise TypeError(
            "verify_certs=False: without a check of the certificate there is no check of the host "
            "name either; give verify_hostname=False too if any program may pose as the server"
        )
    if verifies and not options.get("ca") and not system_ca:
        raise TypeError(
            "use_ssl: TLS needs an authority to trust: give ca=FILE, or system_ca=True for all "
            "authorities that the system trusts"
        )
    return {"check_hostname": verify_hostname}


def speak_tls(client: KazooClient, system_ca: bool, server_name: str) -> None:
    """Make the TLS connections of a client, and report what is wrong with a certificate.

    kazoo itself would trust all authorities of the system too, accept no name but that of the host,
    and leave a socket open after a failed handshake. Each connection reads the files again, because
    certificates are renewed. Raises InvalidSettings for files that cannot be used.

    A failed handshake does not show the certificate. So a second handshake, which checks everything
    but the host name, reads the names in the certificate. The client sends nothing after it.
    """
    if not client.use_ssl:
        return
    plain = client.handler.create_connection
    context_of(client, system_ca)

    def create(
        address: Any, hostname: str | None = None, timeout: float | None = None, **given: Any
    ) -> Any:
        if not given.get("use_ssl"):
            return plain(address, hostname=hostname, timeout=timeout, **given)
        name = server_name or hostname or address[0]
        context = context_of(client, system_ca)
        try:
            return connected(context, address, name, timeout)
        except ssl.SSLCertVerificationError as error:
            if error.verify_code not in MISMATCH:
                raise
            context.check_hostname = False
            try:
                with connected(context, address, name, timeout) as connection:
                    named = names_of(connection.getpeercert())
            except OSError:  # the server has ended meanwhile
                named = "other hosts"
            raise ConnectionDropped(
                f"the TLS certificate of the server is for {named}, not for {name}: write a name "
                "in the certificate into `hosts` or `tls.server-name`, or give the server a "
                f"certificate for {name} (subjectAltName); verify_hostname=False skips this check"
            ) from error

    client.handler.create_connection = create


def connected(
    context: ssl.SSLContext, address: Any, name: str, timeout_s: float | None
) -> ssl.SSLSocket:
    raw = socket.create_connection(address[:2], timeout_s)
    try:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return context.wrap_socket(raw, server_hostname=name)
    except BaseException:
        raw.close()
        raise


def context_of(client: KazooClient, system_ca: bool) -> ssl.SSLContext:
    """Return the TLS context of a client. Raises InvalidSettings for files that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = client.check_hostname
    context.verify_mode = ssl.CERT_REQUIRED if client.verify_certs else ssl.CERT_NONE
    if system_ca:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    what = "the TLS authority"
    file = client.ca
    try:
        if client.ca:
            context.load_verify_locations(client.ca)
        if client.certfile:
            what = "the TLS certificate or its key"
            file = f"{client.certfile}, {client.keyfile or client.certfile}"
            # An empty password keeps OpenSSL from asking at a terminal: a worker may have none.
            password = client.keyfile_password or ""
            context.load_cert_chain(client.certfile, client.keyfile, lambda: password)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "strerror", "") or str(error)
        raise InvalidSettings(f"{what} cannot be used ({file}): {reason}") from None
    return context


def names_of(certificate: Any) -> str:
    """
    >>> names_of({"subjectAltName": (("DNS", "zk1"), ("IP Address", "10.0.0.1"))})
    'zk1, 10.0.0.1'
    >>> names_of({"subject": ((("commonName", "zk1"),),)})
    'zk1 (the common name, without a subjectAltName)'
    """
    names = [name for kind, name in certificate.get("subjectAltName", ()) if kind in _KINDS]
    subject = {kind: name for parts in certificate.get("subject", ()) for kind, name in parts}
    common = subject.get("commonName", "no host")
    return ", ".join(names) or f"{common} (the common name, without a subjectAltName)"


# ---- Log in to a closed server of this user on this machine, and to no other program.
#
# When the server has ended, another user's program may listen at its port, answer the handshake,
# and get the login. So before the client sends the login, it asks the system which user owns the
# other end. Only Linux can tell; elsewhere any program that listens at the port gets the login.


_TABLES = {socket.AF_INET: "/proc/net/tcp", socket.AF_INET6: "/proc/net/tcp6"}
_LISTENS = "0A"


def log_in(client: KazooClient, login: Callable[[], str]) -> None:
    """Make the client log in on each connection, besides its other logins. `login()` returns the
    current `user:password`, or "" for none."""
    create = client.handler.create_connection
    own: set[tuple[str, str]] = set()
    connection: list[Any] = [None]

    def create_to_owner(*arguments: Any, **options: Any) -> Any:
        connection[0] = made = create(*arguments, **options)
        given = set(client.auth_data) - own
        own.clear()
        if found := login():
            own.add(("digest", found))
            # Check before the handshake, which would show a stranger the password of the session.
            _check_owner(made, listens=True)
        client.auth_data = given | own
        return made

    def around_invoke(invoke: Callable[..., Any]) -> Callable[..., Any]:
        def invoke_with_owner(timeout: float, request: Any, *rest: Any, **more: Any) -> Any:
            if type(request) is Auth and (request.scheme, request.auth) in own:
                # The handshake was answered, so the system now knows who owns the other end.
                _check_owner(connection[0], listens=False)
            return invoke(timeout, request, *rest, **more)

        return invoke_with_owner

    client.handler.create_connection = create_to_owner
    wrap(client, LoopStep.INVOKE, around_invoke)


def _check_owner(connection: Any, *, listens: bool) -> None:
    owner = owner_of_peer(connection, listens=listens)
    if owner is not None and owner not in (0, os.geteuid()):
        host, port = connection.getpeername()[:2]
        connection.close()
        raise ConnectionDropped(
            f"user {owner} of this machine now listens at {host}:{port} instead of your server, "
            "and gets no login of yours: start your server at another port"
        )


def owner_of_peer(connection: Any, *, listens: bool) -> int | None:
    """Return which user owns the other end of a connection within this machine; None if unknown.

    With `listens`, return the owner of the listening socket, known before it accepts.
    """
    table = _TABLES.get(connection.family)
    if table is None or not os.path.exists(table):
        return None
    theirs, ours = _entry(connection.getpeername()), _entry(connection.getsockname())
    _, _, port = theirs.partition(":")
    everywhere = f"{'0' * (len(theirs) - len(port) - 1)}:{port}"
    with open(table, "rb") as lines:
        next(lines)
        for line in lines:
            fields = line.decode("ascii").split()
            local, remote, state, user = fields[1], fields[2], fields[3], int(fields[7])
            if listens:
                if state == _LISTENS and local in (theirs, everywhere):
                    return user
            elif (local, remote) == (theirs, ours):
                return user
    return None


def _entry(address: tuple[Any, ...]) -> str:
    """An address as Linux writes it in its tables: words of four bytes in native byte order."""
    host, port = address[:2]
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    packed = socket.inet_pton(family, host.partition("%")[0])
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    hexed = (f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    return f"{''.join(hexed)}:{port:04X}"
