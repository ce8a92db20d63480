"""S11 in the tree: the permits of the limit, while everything goes on and at the end."""

from __future__ import annotations

import zkplan
from zkplan.protocol.layout import PERMIT
from zkplan.protocol.requests import ReadChildren

from ..traffic.controls import LIMIT, LIMIT_SIZE


def _held(client: zkplan.Client) -> list[str]:
    names = client.transport.ask(ReadChildren(f"{client.root}/limits/{LIMIT}")) or ()
    return [name for name in names if name.startswith(PERMIT)]


def too_many(client: zkplan.Client) -> list[str]:
    """More permits at one moment than the limit has; its size never changes in a run."""
    held = _held(client)
    return [f"S11 {len(held)} of {LIMIT_SIZE} permits are held"] * (len(held) > LIMIT_SIZE)


def left(client: zkplan.Client) -> list[str]:
    """The permits that are held, asked when no claim is left."""
    return [f"S11 {name} of {LIMIT} is left" for name in _held(client)]
