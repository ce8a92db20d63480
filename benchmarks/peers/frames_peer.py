"""Dask reads files into frames and merges them, by the same functions in processes of its own."""

from __future__ import annotations

import sys
import time
from typing import Any

from ..frame_functions import GROUP, facts, merge, read
from .dask_peer import Peer
from .serving import answer_lines


def run(peer: Peer, paths: list[str]) -> dict[str, Any]:
    """Make the table, timed from the first call until the table is here."""
    client = peer.client
    began = time.perf_counter()
    frames = [client.submit(read, path, pure=False) for path in paths]
    starts = range(0, len(frames), GROUP)
    groups = [client.submit(merge, frames[at : at + GROUP], pure=False) for at in starts]
    table = client.submit(merge, groups, pure=False).result()
    seconds = time.perf_counter() - began
    del frames, groups
    peer.settle()
    return {"seconds": seconds, "facts": facts(table)}


if __name__ == "__main__":
    peer = Peer(int(sys.argv[1]), int(sys.argv[2]))
    answer_lines(peer.start, {}, lambda asked: run(peer, asked["paths"]))
    peer.close()
