"""What a running server has done and holds, for those who watch it."""

from __future__ import annotations

from typing import NamedTuple

from zkplan.embedded.words import Subject


class ServerStatistics(NamedTuple):
    """A server at one moment. What ends in `_max` is where it refuses more.

    `tree_bytes` are those of data, paths and access lists. `answers` requests were answered after
    `answer_s` seconds in all, the slowest after `slowest_s`; each took its share of a commit.
    """

    znodes: int
    znodes_max: int
    tree_bytes: int
    tree_bytes_max: int
    connections: int
    connections_max: int
    sessions: int
    ephemerals: int
    watches: int
    received: int
    sent: int
    answers: int
    answer_s: float
    slowest_s: float


def statistics_of(server: Subject) -> ServerStatistics:
    """On the thread of the server's loop."""
    limits, tree, traffic = server.settings.limits, server.tree, server.traffic
    _, _, watches = tree.watches.counts()
    return ServerStatistics(
        *(tree.node_count, limits.znodes, tree.znodes.bytes, limits.tree_bytes),
        *(len(server.peers()), limits.connections, len(server.sessions)),
        *(tree.ephemeral_count, watches, server.service.received, traffic.sent),
        *(traffic.timed, traffic.sum_ms / 1000, traffic.max_ms / 1000),
    )
