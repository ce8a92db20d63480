"""Opening a connection: kazoo's options as measured to be right, and one clear error."""

from __future__ import annotations

from typing import Any

from kazoo.client import KazooClient

from ..errors import KeeperUnavailable
from .core import Keeper


def open_keeper(
    hosts: str,
    *,
    session_timeout_s: float = 10.0,
    connect_timeout_s: float = 10.0,
    patience_s: float | None = 30.0,
    **kazoo_options: Any,
) -> Keeper:
    """Connect to ZooKeeper; raises KeeperUnavailable when no server answers in time.

    `kazoo_options` go to KazooClient (auth_data, use_ssl, default_acl, …).
    """
    options = {"connection_retry": {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1}}
    try:
        client = KazooClient(hosts, timeout=session_timeout_s, **(options | kazoo_options))
    except (ValueError, TypeError) as error:
        raise KeeperUnavailable(f"{hosts!r} is not a list of ZooKeeper hosts: {error}") from error
    try:
        client.start(timeout=connect_timeout_s)
    except client.handler.timeout_exception:
        client.close()
        raise KeeperUnavailable(
            f"no ZooKeeper answered at {hosts} within {connect_timeout_s:g} s; is it running, "
            "and is the address right?"
        ) from None
    return Keeper(client, owns=True, patience_s=patience_s)
