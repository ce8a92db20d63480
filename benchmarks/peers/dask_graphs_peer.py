"""Dask's own distributed scheduler computes the expressions, in processes of its own."""

from __future__ import annotations

import gc
import sys
import time
from typing import Any

from .dask_expressions import EXPRESSIONS, plain
from .dask_peer import Peer
from .serving import answer_lines


def run(peer: Peer, asked: dict[str, Any]) -> dict[str, Any]:
    """Compute an expression, timed from before the graph is built until the result is here."""
    gc.collect()
    began = time.perf_counter()
    found = EXPRESSIONS[asked["name"]](asked["size"]).compute(scheduler=peer.client)
    seconds = time.perf_counter() - began
    peer.settle()
    return {"seconds": seconds, "value": plain(found)}


if __name__ == "__main__":
    peer = Peer(int(sys.argv[1]), int(sys.argv[2]))
    answer_lines(peer.start, {}, lambda asked: run(peer, asked))
    peer.close()
