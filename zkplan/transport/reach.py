"""Whether a server is reached: its name, its port, its certificate, and what it says of itself."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Mapping
from typing import NamedTuple

from .tls import MISMATCH, connected, names_of

#: What OpenSSL answers (`verify_code`) for a certificate that has expired, or is not valid yet.
_EXPIRED, _TOO_EARLY = 10, 9
_NOTHING: Mapping[str, str] = {}
_WORD, _ANSWER_BYTES = b"srvr", 65_536


class Reached(NamedTuple):
    """One server as it was found.

    `problem` says why it cannot be used, `todo` what to do; both are empty if it can. `facts` is
    what it says of itself, by heading; empty where it does not tell.
    """

    address: str
    problem: str = ""
    todo: str = ""
    facts: Mapping[str, str] = _NOTHING


def reach(
    host: str, port: int, context: ssl.SSLContext | None, server_name: str, timeout_s: float
) -> Reached:
    """Connect to one server, as a client would, and ask it for its status."""
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
    except OSError:  # the certificate is wrong in another way, too
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
        # A server that wants a certificate of the client says so in TLS, too.
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
    return True


def _status(connection: socket.socket) -> dict[str, str]:
    """What the four-letter word `srvr` says, by heading; a server may have it locked."""
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
