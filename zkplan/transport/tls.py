"""TLS: the certificate of a server must name the host that was asked for."""

from __future__ import annotations

import socket
import ssl
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped

from ..errors import InvalidSettings

#: What OpenSSL answers where the host name, or the IP address, does not match (`verify_code`).
MISMATCH = (62, 64)
_KINDS = ("DNS", "IP Address")


def tls_options(
    options: dict[str, Any], verify_hostname: bool, system_ca: bool, server_name: str
) -> dict[str, Any]:
    """What is added to kazoo's `options`: kazoo checks no host name by itself.

    Raises TypeError for options that would turn the check off without `verify_hostname=False`, and
    for TLS without an authority to trust.
    """
    if "check_hostname" in options:
        raise TypeError(
            "check_hostname: host names are checked over TLS, unless verify_hostname=False is given"
        )
    if not options.get("use_ssl"):
        if system_ca or server_name:
            raise TypeError("system_ca and server_name are for TLS: give use_ssl=True too")
        return {}
    verifies = options.get("verify_certs", True)
    if verify_hostname and not verifies:
        raise TypeError(
            "verify_certs=False: without a check of the certificate there is none of the host name "
            "either; give verify_hostname=False too if anybody may pose as the server"
        )
    if verifies and not options.get("ca") and not system_ca:
        raise TypeError(
            "use_ssl: TLS needs an authority to trust: give ca=FILE, or system_ca=True for all "
            "that the system trusts"
        )
    return {"check_hostname": verify_hostname}


def speak_tls(client: KazooClient, system_ca: bool, server_name: str) -> None:
    """Make the TLS connections of a client, and say what is wrong with a certificate.

    kazoo would trust all authorities of the system beside the one that is given, expect the
    certificate to name the host alone, and leave a socket open when a handshake fails. Raises
    InvalidSettings for files that cannot be used. The files are read again for each connection,
    since certificates are renewed.

    A failed handshake does not show the certificate: to say what it names, a second one looks at
    it. That one sends nothing either, and checks the certificate in all but the host name.
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
            except OSError:  # gone meanwhile
                named = "other hosts"
            raise ConnectionDropped(
                f"the TLS certificate of the server is for {named}, not for {name}: write one of "
                "its names into `hosts` or `tls.server-name`, or give the server a certificate for "
                "this one (subjectAltName); verify_hostname=False turns this check off"
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
    """What a client trusts, and shows of itself. Raises InvalidSettings for files of no use."""
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
            # A password is never asked for at a terminal: a worker may have none.
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
