"""Access control lists: convert one for storage, check a right, show a list to a reader.

Schemes: world, auth, digest and ip. Any other is malformed, as on a server without its provider.
The answers are those of version 3.8.0, except that ip supports IPv6, as on later servers.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import re
from functools import lru_cache

from .operations import ADMIN, NO_DATA, OPEN_ACL, READ, Acl, Identity, InvalidAclError

#: A list of entries. None gives everyone all rights.
AclList = tuple[Acl, ...] | None
#: The identities of a requester. None is a trusted requester, whom no list restricts.
Who = tuple[Identity, ...] | None

# The list of the server's own node: everyone may read the node, and no one may change it.
READ_ONLY_ACL = (Acl(READ, "world", "anyone"),)

_NUMBER = re.compile(r"[+-]?[0-9]+")
_REMEMBERED_LENGTH = 64


def authenticate(scheme: str, auth: bytes, address: str) -> Identity | None:
    """Return the identity that a requester at `address` proves with `auth`; None without one."""
    if auth is NO_DATA:  # a real server refuses null, and accepts an empty text
        return None
    if scheme == "digest":
        return digest_identity(auth.decode("utf-8", "replace"))
    return Identity("ip", address) if scheme == "ip" else None


def digest_identity(user_and_password: str) -> Identity:
    """Return the identity that 'user:password' proves, with a SHA-1 in place of the password."""
    digest = hashlib.sha1(user_and_password.encode("utf-8", "replace")).digest()
    user = user_and_password.partition(":")[0]
    return Identity("digest", f"{user}:{base64.b64encode(digest).decode()}")


def mended(path: str, acl: tuple[Acl, ...], who: Who) -> AclList:
    """Return a list as a server stores it: no entry twice, `auth` replaced by the digests of `who`.

    A list without a restriction becomes None. Raises InvalidAclError if the list is empty, an entry
    is malformed, or `auth` matches no proven digest. A trusted requester's list is not checked.
    """
    if acl == OPEN_ACL:
        return None
    if who is None:
        return acl
    entries: list[Acl] = []
    for entry in dict.fromkeys(acl):
        if entry.scheme == "auth":
            proven = [identity for identity in who if identity.scheme == "digest"]
            if not proven:
                raise InvalidAclError(path)
            entries += [Acl(entry.perms, *identity) for identity in proven]
        elif entry[1:] == ("world", "anyone") or _is_well_formed(entry):
            entries.append(entry)
        else:
            raise InvalidAclError(path)
    if not entries:
        raise InvalidAclError(path)
    stored = tuple(entries)
    return None if stored == OPEN_ACL else stored


def permits(acl: AclList, perms: int, who: Who) -> bool:
    """Whether `acl` grants any of `perms` to any identity of the requester."""
    if not acl or who is None:
        return True
    for entry in acl:
        if entry.perms & perms:
            if entry.scheme == "world" and entry.id == "anyone":
                return True
            for identity in who:
                if identity.scheme == entry.scheme and _matches(identity, entry):
                    return True
    return False


def shown(acl: AclList, who: Who) -> tuple[Acl, ...]:
    """Return a list as `who` may see it: without the right ADMIN, no hashes of passwords."""
    if acl is None:
        return OPEN_ACL
    if permits(acl, ADMIN, who):
        return acl
    return tuple(
        entry._replace(id=entry.id.partition(":")[0] + ":x")
        if entry.scheme == "digest" and ":" in entry.id
        else entry
        for entry in acl
    )


def size_of(acl: AclList) -> int:
    """Roughly the size of the list in bytes."""
    return 0 if acl is None else sum(8 + len(entry.scheme) + len(entry.id) for entry in acl)


def _is_well_formed(entry: Acl) -> bool:
    if entry.scheme == "digest":
        # A real server splits in Java, which drops empty strings at the end.
        return len(entry.id.rstrip(":").split(":")) == 2
    return entry.scheme == "ip" and _network(entry.id) is not None


def _matches(identity: Identity, entry: Acl) -> bool:
    if entry.scheme == "digest":
        return identity.id == entry.id
    if entry.scheme != "ip":
        return False
    within = _is_within if len(entry.id) <= _REMEMBERED_LENGTH else _is_within.__wrapped__
    return within(identity.id, entry.id)


# One request can have 60 000 checks of a list of 10 000 networks. Parsing the networks each time
# would take hours. Texts above _REMEMBERED_LENGTH are legal, but would take too much memory here.
@lru_cache(maxsize=65_536)
def _is_within(address_text: str, network_text: str) -> bool:
    network, address = _network(network_text), _address(address_text)
    return network is not None and address is not None and address in network


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    host, slash, bits_text = text.partition("/")
    address = _address(host)
    if address is None or (slash and not _NUMBER.fullmatch(bits_text)):
        return None
    bits = int(bits_text[:20]) if slash else address.max_prefixlen
    if not 0 <= bits <= address.max_prefixlen:
        return None
    return ipaddress.ip_network((address.packed, bits), strict=False)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    parts = text.split(".")
    try:
        if ":" in text:
            return ipaddress.IPv6Address(text.partition("%")[0])
        if all(_NUMBER.fullmatch(part) for part in parts):
            # Not parsed by Python, because a real server accepts more texts.
            return ipaddress.IPv4Address(bytes(int(part[:20]) for part in parts))
    except ValueError:
        pass  # a number out of range, or not four numbers
    return None
