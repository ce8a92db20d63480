"""What broken variants of queues do: the simulation must find each (`mutants.py`)."""

from __future__ import annotations

from zkplan.protocol.layout import QUEUES
from zkplan.protocol.requests import Create, Op
from zkplan.protocol.transactions import Allowance

from .broken_runs import Rewrite
from .network import Fiber
from .world import World


def to_default_queue(*kinds: str) -> Rewrite:
    """Steps of these kinds put every entry into the default queue."""

    def rewrite(world: World, fiber: Fiber, op: Op) -> Op:
        head, _, rest = op.path.partition(f"/{QUEUES}/")
        if type(op) is not Create or fiber.kind not in kinds or "/" not in rest:
            return op
        return op._replace(path=f"{head}/runnable/{rest.partition('/')[2]}")

    return rewrite


def edge_without_queue(world: World, fiber: Fiber, op: Op) -> Op:
    if type(op) is Create and op.path.endswith("/prov-"):
        return op._replace(data=op.data.partition(b',"queue"')[0].rstrip(b"}") + b"}")
    return op


def takes_any(allowance: Allowance, plan_path: str, _queue: str, made: int) -> bool:
    """A commit claims dependents of queues that its worker does not serve."""
    return plan_path in allowance.versions and made < allowance.claims
