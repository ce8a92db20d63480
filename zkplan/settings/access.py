"""Access lists as users write them: `creator+read:digest:ops:HASH`."""

from __future__ import annotations

import re
from typing import NamedTuple

#: The rights of ZooKeeper, by name. A list says who may read, write, create and delete children,
#: and change the list.
RIGHTS = {"read": 1, "write": 2, "create": 4, "delete": 8, "admin": 16, "all": 31}
#: A plus sign that begins another entry: that of a digest's base64 does not.
_NEXT = re.compile(rf"\+(?=creator(?:\+|$)|open(?:\+|$)|(?:{'|'.join(RIGHTS)})[,:])")
_WANTED = (
    "`open`, `creator`, or entries such as `creator+read:digest:USER:HASH` "
    f"(rights: {', '.join(RIGHTS)}; several with commas between)"
)


class Entry(NamedTuple):
    """Who has which rights: the sum of numbers of RIGHTS."""

    rights: int
    scheme: str
    id: str


#: Whoever creates a znode, by each login that the client has.
CREATOR = Entry(RIGHTS["all"], "auth", "")
OPEN = Entry(RIGHTS["all"], "world", "anyone")


def entries(access: str) -> list[Entry]:
    """The entries of a list. Raises ValueError, which says what is wanted.

    >>> entries("creator+read,write:x509:CN=ops")
    [Entry(rights=31, scheme='auth', id=''), Entry(rights=3, scheme='x509', id='CN=ops')]
    >>> entries("read:digest:ops:a+b=+all:ip:10.0.0.1")[0].id
    'ops:a+b='
    """
    return [_entry(text.strip()) for text in _NEXT.split(access)]


def check_access(access: str) -> str:
    """The same list, if it is one. Raises ValueError."""
    entries(access)
    return access


def _entry(text: str) -> Entry:
    if text in ("creator", "open"):
        return CREATOR if text == "creator" else OPEN
    rights, _, who = text.partition(":")
    scheme, _, name = who.partition(":")
    names = rights.split(",")
    if not scheme or not name or not all(each in RIGHTS for each in names):
        raise ValueError(_WANTED)
    total = 0
    for each in names:
        total |= RIGHTS[each]
    return Entry(total, scheme, name)
