"""TLS of the server's end: its certificate, and whom it asks for one."""

from __future__ import annotations

import ssl
from pathlib import Path


def server_tls(
    certificate: str | Path, key: str | Path, client_ca: str | Path | None = None
) -> ssl.SSLContext:
    """TLS 1.2 or later with this certificate (and those of its authorities), files in PEM.

    With `client_ca`, only clients with a certificate of that authority can connect; they have to
    log in besides. Raises OSError (ssl.SSLError is one) for files that cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_ca)
    return context
