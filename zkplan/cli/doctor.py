"""Examine the root with this login, for `zkplan config check`: rights, clock, latency, limits."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Literal, NamedTuple

from ..basics.settings import Settings
from ..basics.text import count, took
from ..client import Client
from ..errors import ZkplanError
from ..protocol.requests import ReadData, ReadMany
from ..transport.probes import Made, Probe, Refusal, open_rights
from ..views.root_access import BY_SERVER, hint_at_root, rights


class Finding(NamedTuple):
    """One finding. A problem keeps zkplan from working, or lets in people without the right.

    `told` is what was found, `todo` what to do; empty if there is nothing to do.
    """

    check: str
    state: Literal["ok", "note", "problem"]
    told: str
    todo: str = ""


def ok(check: str, found: str) -> Finding:
    return Finding(check, "ok", found)


def note(check: str, found: str, todo: str) -> Finding:
    return Finding(check, "note", found, todo)


def problem(check: str, found: str, todo: str) -> Finding:
    return Finding(check, "problem", found, todo)


_ANSWER_S = 10.0
_SKEW_S = 5.0
_SLOW_S = 0.1
_SAMPLES = 11
#: The size of zkplan's largest request, and the sizes to try if that request does not fit.
_LARGEST = 1_000_000
_SMALLER = (750_000, 500_000, 250_000, 120_000, 60_000, 30_000, 15_000, 4_000)
_CLOSE = "`zkplan root lock` closes a root to all but its login"


def look(client: Client, settings: Settings) -> Iterator[Finding]:
    """Look at the root over this connection."""
    probe = Probe(client.transport.client, _ANSWER_S)
    children = probe.children(client.root)
    exists = not isinstance(children, Refusal)
    # A server that refuses a SASL login closes the connection without an answer.
    is_sasl = settings.login_type.startswith("sasl")
    if children is Refusal.LOGIN or (is_sasl and children is Refusal.LOST):
        yield _login_refused()
        return
    if children is Refusal.NO_AUTH:
        yield problem(
            "root",
            f"{client.root} may not be read with this login: {_identity(settings)} is not on its "
            "access list",
            "is it the right user and password (or certificate)? A server takes a digest login "
            "with a wrong password for another user",
        )
        return
    if isinstance(children, Refusal) and children is not Refusal.NO_NODE:
        yield problem("root", f"{client.root}: {children.value}", "look into the server's log")
        return
    yield ok("root", f"{client.root} may be read") if exists else _missing_root(client)
    client.transport.ask(ReadMany([ReadData(client.root)]))
    if not client.transport.reads_batches:
        yield problem(
            "version",
            "the server reads one znode at a time, as ZooKeeper before 3.6 does",
            "upgrade it to 3.9.4 or newer",
        )
    parent = _nearest(probe, client.root)
    made = probe.create(parent)
    yield _may_create(made, parent, client.root, settings)
    if exists:
        yield from _who_else(client, probe)
    if isinstance(made, Made):
        yield _clock(made)
        yield _latency(probe, made.path)
        yield _largest(probe, made.path)


def _missing_root(client: Client) -> Finding:
    try:
        hint = hint_at_root(client)
    except ZkplanError:
        hint = ": there is no such root"
    if "beside it" in hint:
        return problem("root", f"{client.root}{hint}", "set `root` to one of these?")
    return note("root", f"there is no {client.root} yet", "the first worker or author creates it")


def _nearest(probe: Probe, root: str) -> str:
    """The root, or the nearest znode above it that exists."""
    while root and probe.children(root) is Refusal.NO_NODE:
        root = root.rpartition("/")[0]
    return root or "/"


def _may_create(made: Made | Refusal, parent: str, root: str, settings: Settings) -> Finding:
    if isinstance(made, Made):
        return ok("rights", f"znodes may be created below {parent}")
    if made is Refusal.LOGIN:
        return _login_refused()
    if made is Refusal.INVALID_ACL:
        return problem(
            "rights",
            f"the server refuses the access list {settings.access}",
            "`creator` needs a login that the server knows: does it ask clients for certificates "
            "(ssl.clientAuth), and is the scheme of each entry one of its own?",
        )
    why = f"{root} cannot be created" if parent != root else "no plan can be created"
    return problem(
        "rights",
        f"nothing may be created below {parent}: {made.value}; so {why}",
        f"have the owner of {parent} give the right `create` to this login, or create the root for "
        "it",
    )


def _login_refused() -> Finding:
    return problem(
        "login",
        "the server refused the login",
        "check user and password (or the ticket of kinit); the server's log says why",
    )


def _who_else(client: Client, probe: Probe) -> Iterator[Finding]:
    """Yield what a client without a login may do, by the rules of `zkplan root show`."""
    root = client.root
    names = probe.children(root)
    known = [] if isinstance(names, Refusal) else sorted(names)[:50]
    paths = [root, *(f"{root}/{name}" for name in known)]
    open_to = {path: found for path in paths if (found := _open_rights(client, path))}
    if client.transport.server_is_closed:
        yield ok("access", f"{root} is {BY_SERVER if open_to else 'closed to others'}")
        return
    if root in open_to:
        yield problem(
            "access",
            f"{root} is open: without a login one may {open_to[root]}",
            f"connect with a login; {_CLOSE}",
        )
    elif open_to:
        path, found = next(iter(open_to.items()))
        yield problem("access", f"{path} is open: without a login one may {found}", _CLOSE)
    else:
        yield ok("access", f"{root} is closed to others")
    above = root.rpartition("/")[0] or "/"
    if "delete" in _open_rights(client, above) and root not in open_to:
        yield note(
            "access",
            f"without a login one may delete and create in {above}, where {root} is",
            f"a root can be deleted only once it is empty; close {above} to be safe",
        )


def _open_rights(client: Client, path: str) -> str:
    """Return the rights of a client without a login; empty if it has none."""
    return rights(open_rights(client.transport, path) or 0)


def _clock(made: Made) -> Finding:
    skew_s = made.own_time - made.server_time
    if abs(skew_s) <= _SKEW_S + made.half_s:
        return ok("clock", f"the clocks of server and machine agree within {_SKEW_S:g} s")
    way = "ahead of" if skew_s > 0 else "behind"
    unit_s = 60 if abs(skew_s) > 120 else 1  # it is measured within a round trip
    skew = took(1000 * unit_s * round(abs(skew_s) / unit_s))
    return problem(
        "clock",
        f"the clock of this machine is {skew} {way} that of the server",
        "set the clocks of all machines by NTP: retries begin by the clocks of workers",
    )


def _latency(probe: Probe, path: str) -> Finding:
    reads = [each for _ in range(_SAMPLES) if isinstance(each := probe.read_s(path), float)]
    writes = [each for _ in range(_SAMPLES) if isinstance(each := probe.write_s(path), float)]
    if not reads or not writes:
        return problem("latency", "the server answers no reads or writes", "look into its log")
    found = f"a read takes {median(reads) * 1000:.1f} ms, a write {median(writes) * 1000:.1f} ms"
    if median(writes) <= _SLOW_S:
        return ok("latency", found)
    return note(
        "latency",
        found,
        "a task needs several writes, one after the other: are the disks of the servers fast, and "
        "is one of them near?",
    )


def _largest(probe: Probe, path: str) -> Finding:
    if probe.takes(path, _LARGEST):
        return ok("limits", f"a request of {_LARGEST:,} bytes fits")
    fits = 0
    for size in _SMALLER:
        if probe.wait_connected() and probe.takes(path, size):
            fits = size
            break
    found = f"about {count(fits, 'byte')} fit" if fits else "not even small ones fit"
    return problem(
        "limits",
        f"jute.maxbuffer of the server is small: a request of {_LARGEST:,} bytes does not fit, "
        f"{found}",
        "start the servers with -Djute.maxbuffer=1048576 or more, or keep values small with a "
        "store and inline_limit",
    )


def _identity(settings: Settings) -> str:
    if settings.login_user:
        return f"{settings.login_type} user {settings.login_user}"
    if settings.has_login:
        return "this client"
    return "a client without a login"
