"""TLS: the certificate of a server must name the host that was asked for."""

from __future__ import annotations

import ssl
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped

#: What OpenSSL answers where the host name, or the IP address, does not match (`verify_code`).
_MISMATCH = (62, 64)
_KINDS = ("DNS", "IP Address")


def tls_options(options: dict[str, Any], verify_hostname: bool) -> dict[str, Any]:
    """What is added to kazoo's `options`: kazoo checks no host name by itself.

    Raises TypeError for options that would turn the check off without `verify_hostname=False`.
    """
    if "check_hostname" in options:
        raise TypeError(
            "check_hostname: host names are checked over TLS, unless verify_hostname=False is given"
        )
    checked = bool(options.get("use_ssl")) and verify_hostname
    if checked and not options.get("verify_certs", True):
        raise TypeError(
            "verify_certs=False: without a check of the certificate there is none of the host name "
            "either; give verify_hostname=False too if anybody may pose as the server"
        )
    return {"check_hostname": checked}


def explain_mismatches(client: KazooClient) -> None:
    """Say what the certificate names where it does not name the host.

    A failed handshake does not show the certificate: a second one looks at it. That one sends
    nothing either, and checks the certificate in all but the host name.
    """
    create = client.handler.create_connection

    def create_or_explain(*given: Any, **options: Any) -> Any:
        try:
            return create(*given, **options)
        except ssl.SSLCertVerificationError as error:
            if error.verify_code not in _MISMATCH:
                raise
            host = options.get("hostname")
            try:
                with create(*given, **{**options, "check_hostname": False}) as connection:
                    named = _names(connection.getpeercert())
            except OSError:  # gone meanwhile
                named = "other hosts"
            raise ConnectionDropped(
                f"the TLS certificate of the server is for {named}, not for {host}: write one of "
                "its names into `hosts`, or give the server a certificate for this one "
                "(subjectAltName); verify_hostname=False turns this check off"
            ) from error

    client.handler.create_connection = create_or_explain


def _names(certificate: Any) -> str:
    """
    >>> _names({"subjectAltName": (("DNS", "zk1"), ("IP Address", "10.0.0.1"))})
    'zk1, 10.0.0.1'
    >>> _names({"subject": ((("commonName", "zk1"),),)})
    'zk1 (the common name, without a subjectAltName)'
    """
    names = [name for kind, name in certificate.get("subjectAltName", ()) if kind in _KINDS]
    subject = {kind: name for parts in certificate.get("subject", ()) for kind, name in parts}
    common = subject.get("commonName", "no host")
    return ", ".join(names) or f"{common} (the common name, without a subjectAltName)"
