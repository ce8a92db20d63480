"""The values programs are made of: names, paths, data, access control lists, identities."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

#: Few, so that requests meet the same nodes; the numbered ones are what sequences make.
NAMES = (
    "a",
    "a",
    "a",
    "b",
    "b",
    "c",
    "d",
    "é",
    "...",
    "s-0000000000",
    "s-0000000001",
    "q0000000000",
    "0000000001",
    "x" * 200,
)
SYSTEM_PATHS = ("/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota")
BEYOND_FFFF = "~/\U0001f600"
BAD_PATHS: tuple[str | bytes | None, ...] = (
    None,
    "",
    "a",
    "a/b",
    "//",
    "~/",
    "~//a",
    "~/a/",
    "~/.",
    "~/..",
    "~/./a",
    "~/../a",
    "~/a/../b",
    "~/a/.",
    "~/..a",
    "~/a..",
    "~/.a",
    "~/a\x00b",
    "~/a\x00",
    *(f"~/{odd}" for odd in "\x01\x1f\x20\x7f\x80\x9f\xa0\ud7ff\uf8ff\uf900\uffef\ufff0\ufffd"),
    BEYOND_FFFF,
    b"~/\xff",
    b"~/\xc3",
    b"~/\xed\xa0\x80",
)
DATA = (b"", b"x", b"x", b"some data", None, b"\x00\xff" * 50, b"y" * 3000)

WORLD = ("world", "anyone")
OPEN = ((31, *WORLD),)


def digest_of(user: str, password: str) -> tuple[str, str]:
    """The identity a client proves with `user:password`."""
    digest = hashlib.sha1(f"{user}:{password}".encode()).digest()
    return "digest", f"{user}:{base64.b64encode(digest).decode()}"


ANN, BOB = digest_of("ann", "secret"), digest_of("bob", "secret")
#: The first of each are such that nodes and identities come of them.
SOUND_ACLS, SOUND_IDENTITIES = 13, 5
ACLS: tuple[Any, ...] = (
    OPEN,
    ((1, *WORLD),),
    ((0, *WORLD),),
    ((2, *WORLD),),
    ((30, *WORLD),),
    ((15, *WORLD),),
    ((23, *WORLD),),
    ((31, "auth", ""),),
    ((31, "auth", "ignored"),),
    ((1, *WORLD), (31, "auth", "")),
    ((31, *ANN),),
    ((31, *BOB), (1, *WORLD)),
    ((1, *ANN), (30, *BOB)),
    ((31, "digest", "ann"),),
    ((31, "digest", "ann:"),),
    ((31, "digest", ":x"),),
    ((31, "digest", "a:b:c"),),
    ((31, "digest", ""),),
    ((31, "ip", "127.0.0.1"),),
    ((31, "ip", "127.0.0.0/8"),),
    ((31, "ip", "10.0.0.1"),),
    ((31, "ip", "10.0.0.0/8"), (17, *WORLD)),
    ((31, "ip", "127.0.0.1/33"),),
    ((31, "ip", "127.0.0.1/-1"),),
    ((31, "ip", "127.0.0.1/x"),),
    ((31, "ip", "127.0.0.1/0"),),
    ((31, "ip", "1/"),),
    ((31, "ip", "300.0.0.1"),),
    ((31, "ip", "localhost"),),
    ((31, "ip", "1.2.3"),),
    ((31, "ip", ""),),
    ((31, "world", "nobody"),),
    ((31, "world", ""),),
    ((31, None, None),),
    ((31, "", ""),),
    ((31, "super", ""),),
    ((31, "sasl", "someone"),),
    ((31, "x509", "CN=someone"),),
    ((31, *WORLD), (31, *WORLD)),
    ((31, *WORLD), (1, *WORLD)),
    ((-1, *WORLD),),
    ((64, *WORLD),),
    ((1, *WORLD), (2, *WORLD), (4, *WORLD), (8, *WORLD), (16, *WORLD)),
    (),
    None,
)
IDENTITIES: tuple[tuple[str | None, bytes | None], ...] = (
    ("digest", b"ann:secret"),
    ("digest", b"ann:secret"),
    ("digest", b"ann:secret"),
    ("digest", b"bob:secret"),
    ("digest", b"bob:secret"),
    ("digest", b"bob:wrong"),
    ("digest", b"no password"),
    ("digest", b""),
    ("digest", b"a:b:c"),
    ("digest", b"super:anything"),
    ("ip", b""),
    ("ip", b"1.2.3.4"),
    ("world", b"anyone"),
    ("auth", b""),
    ("sasl", b"x"),
    ("nothing", b"x"),
    ("", b""),
    (None, b"x"),
    ("digest", None),
)
