"""The options of kazoo for a login, an access list and TLS."""

from __future__ import annotations

import importlib.util
import ssl
from typing import Any

from kazoo.client import KazooClient
from kazoo.security import ACL, Id

from ..errors import InvalidSettings
from ..settings.access import OPEN, entries
from ..settings.login import first_line_of
from ..settings.settings import DIGEST, SASL_GSSAPI, Settings
from .kazoo_client import make_client
from .tls import context_of, speak_tls, tls_options


def access_options(settings: Settings) -> dict[str, Any]:
    """What `open_transport` needs of the settings, besides hosts and times.

    The password must have been read. Raises InvalidSettings if a package is missing.
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
    """A client for these settings that is not connected, and what it does over TLS.

    The password must have been read. Raises InvalidSettings, and ValueError for malformed hosts.
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
