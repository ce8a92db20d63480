"""Queues of the simulation: which a task is in, which a worker serves, and the judgement of S15."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zkplan.embedded.znodes import Node
from zkplan.protocol.layout import DEFAULT_QUEUE, parse_delayed, parse_gate
from zkplan.protocol.records import Dead, queue_from_bytes
from zkplan.protocol.requests import Create
from zkplan.protocol.transactions import claim_facts

from .story import Meant, Violation

if TYPE_CHECKING:
    from .world import World

#: The share of runs with queues.
SHARE = 0.35
NAMES = (DEFAULT_QUEUE, "gpu", "x.y-z_9")


def draw_queue(rng: random.Random) -> str:
    return rng.choice(NAMES)


def draw_served(rng: random.Random | None) -> list[str]:
    """What a worker serves, the preferred queue first. None: no queues in this run."""
    return [DEFAULT_QUEUE] if rng is None else rng.sample(NAMES, rng.randint(1, len(NAMES)))


def served(world: World, drawn: list[str]) -> list[str]:
    """The same at this moment: once the faults stop, each worker serves all queues."""
    if not world.calm or world.queues is None:
        return drawn
    return [*drawn, *(name for name in NAMES if name not in drawn)]


def judge_place(task: Meant, op: Create, path: str, served: Sequence[str]) -> None:
    """S15: whatever stands for a task is of the queue that its record names.

    `served` are the queues of the worker that claims it.
    """
    *_, above, name = path.split("/")
    if "/claims/" in path:
        queue = claim_facts(op.data).queue
        if task.queue not in served:
            raise Violation(f"S15 {task.name} of {task.queue} is claimed by {above}, for {served}")
    elif above == "delayed":
        later = parse_delayed(name)
        queue = later.queue if later is not None else ""
    elif above == "gates":
        gate = parse_gate(name)
        queue = gate.queue if gate is not None else ""
    elif above == "dead":
        queue = Dead.from_bytes(op.data).queue
    else:
        limits = "".join(name.partition("~")[1:])
        queue = (DEFAULT_QUEUE if above == "runnable" else above) + limits
    if queue != task.lane:
        raise Violation(f"S15 {task.name} is of {task.lane}, {path} of {queue}")


def judge_ready(task: Meant, ready: Node) -> None:
    """S15: so is its `ready`, from which a check learns it."""
    queue = queue_from_bytes(ready.data)
    if queue != task.lane:
        raise Violation(f"S15 {task.name} is of {task.lane}, its `ready` says {queue}")
