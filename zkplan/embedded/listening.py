"""The socket on which a server listens: one address, and enough descriptors for its connections."""

from __future__ import annotations

import asyncio
import errno
import resource
import socket

# Besides connections: the database, the log, the loop, and what the program has open by itself.
_OTHER_DESCRIPTORS = 64
# This machine has no such address, for instance no IPv6 where `localhost` names ::1 first.
_NO_SUCH_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


async def listening_socket(host: str, port: int, backlog: int) -> socket.socket:
    """A socket that listens on the first address of `host` that this machine has.

    One only: on each of two addresses, port 0 would be another port. Raises OSError, above all
    where the address is in use.
    """
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    refusal: OSError | None = None
    for family, kind, protocol, _, address in found:
        try:
            # With its protocol: asyncio sends without delay only where a socket says it is TCP.
            endpoint = socket.socket(family, kind, protocol or socket.IPPROTO_TCP)
            _listen(endpoint, address, backlog)
        except OSError as error:
            refusal = OSError(
                error.errno, f"cannot listen on {address[0]} port {port}: {error.strerror}"
            )
            if error.errno not in _NO_SUCH_ADDRESS:
                raise refusal from error
        else:
            return endpoint
    raise refusal or OSError(f"{host!r} names no address to listen on")


def _listen(endpoint: socket.socket, address: tuple[object, ...], backlog: int) -> None:
    try:
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if endpoint.family == socket.AF_INET6:
            endpoint.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        endpoint.bind(address)
        endpoint.listen(backlog)
    except BaseException:
        endpoint.close()
        raise


def allow_descriptors(connections: int) -> None:
    """Let this process open so many connections, as far as it may without more rights."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_DESCRIPTORS
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
