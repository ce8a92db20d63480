"""Certificates for a server of a test, made and signed with openssl, and thrown away with it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from zkplan.testing.server_process import LOOPBACK

_PASSWORD = "zkplan"
_SUBJECT = ("-subj", f"/CN={LOOPBACK}")
_NEW_KEY = ("-newkey", "rsa:2048", "-nodes")


class Authority:
    """Who signs the certificate of a server. `certificate` is what clients are to trust."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self.server_key, self.server_certificate = (
            self._file("server.key"),
            self._file("server.pem"),
        )
        #: The server's key and certificate in one file, which is replaced at once.
        self.server_identity = self._file("identity.pem")
        self.certificate = self._file("pem")
        self.store = self._file("p12")
        self._key = self._file("key")
        made = ("-keyout", str(self._key), "-out", str(self.certificate))
        _openssl("req", "-x509", *_NEW_KEY, "-days", "2", "-subj", f"/CN={name}", *made)

    def sign_for_the_server(self, days: int = 2, names: str = f"IP:{LOOPBACK}") -> None:
        """Put a new key, and a certificate for so many days from now, into `store`.

        `names` are those of the server, as openssl writes a subjectAltName; empty: it has none.
        """
        key, request, signed = self.server_key, self._file("server.csr"), self.server_certificate
        named = ("-addext", f"subjectAltName={names}") if names else ()
        _openssl("req", *_NEW_KEY, *_SUBJECT, *named, "-keyout", str(key), "-out", str(request))
        signer = ("-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial")
        how = ("-days", str(days), "-copy_extensions", "copy")
        _openssl("x509", "-req", "-in", str(request), *signer, *how, "-out", str(signed))
        both = ("-in", str(signed), "-inkey", str(key), "-passout", f"pass:{_PASSWORD}")
        _openssl("pkcs12", "-export", *both, "-out", str(self.store))
        new = self._file("identity.new")
        new.write_text(key.read_text() + signed.read_text())
        new.replace(self.server_identity)

    def sign_for_a_client(self, name: str, password: str = "") -> Path:
        """A file with a new key, encrypted where there is a password, and its certificate."""
        key, request, signed = (self._file(f"{name}.{kind}") for kind in ("key", "csr", "crt"))
        made = ("-keyout", str(key), "-out", str(request))
        _openssl("req", *_NEW_KEY, "-subj", f"/CN={name}", *made)
        signer = ("-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial")
        _openssl("x509", "-req", "-in", str(request), *signer, "-days", "2", "-out", str(signed))
        if password:
            _openssl("rsa", "-aes256", "-passout", f"pass:{password}", *_in_place(key))
        both = self._file(f"{name}.pem")
        both.touch(0o600)
        both.write_text(key.read_text() + signed.read_text())
        return both

    def _file(self, kind: str) -> Path:
        return self._folder / f"{self._name}.{kind}"


def secure(authority: Authority, port: int, client_auth: str = "none") -> Mapping[str, str]:
    """A key for the server, and the lines of zoo.cfg that make it speak TLS at `port`.

    With `client_auth` "need" clients need a certificate of the same authority.
    """
    authority.sign_for_the_server()
    return {
        "secureClientPort": str(port),
        "secureClientPortAddress": LOOPBACK,
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.clientAuth": client_auth,
        "ssl.keyStore.location": str(authority.store),
        "ssl.keyStore.password": _PASSWORD,
        "ssl.keyStore.type": "PKCS12",
        # Also where it asks no client for a certificate, it wants some trust to be set.
        "ssl.trustStore.location": str(authority.certificate),
        "ssl.trustStore.type": "PEM",
    }


def _in_place(file: Path) -> tuple[str, ...]:
    return ("-in", str(file), "-out", str(file))


def _openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)
