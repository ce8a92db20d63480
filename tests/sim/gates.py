"""Gates in the simulation: znodes outside the root that change, and S17, which judges openings.

Znodes that come and go hold nothing, and those that gates want a value of never go: a znode that
was deleted and made again may have the version that it had before (docs/guarantees.md).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Generator, Mapping
from typing import TYPE_CHECKING, Any

from zkplan.embedded import operations as server
from zkplan.protocol.features import gates
from zkplan.protocol.features.gates import ARGUMENT, Condition, Opening, Seen
from zkplan.protocol.layout import parse_gate
from zkplan.protocol.requests import Node
from zkplan.protocol.transactions import children_watched

from .story import Meant, Violation

if TYPE_CHECKING:
    from .world import World

Script = Generator[Any, Any, None]
#: The share of runs with gates, of tasks without dependencies that are gates there, and of steps
#: after which a znode outside changes.
SHARE, GATES, CHANGES = 0.25, 0.6, 0.08
#: The root of the simulation.
ROOT = "/z"
OUTSIDE = "/outside"
COMES_AND_GOES, HOLDS = f"{OUTSIDE}/a", f"{OUTSIDE}/value"
VALUES = (b"", b"1", b"2")
#: The argument of a gate whose time is over.
LATE = b"late"


def drawn(rng: random.Random) -> Condition:
    return rng.choice(
        (
            Condition(COMES_AND_GOES, "exists"),
            Condition(COMES_AND_GOES, "absent"),
            Condition(HOLDS, "value", b"1"),
            Condition(HOLDS, "exists"),
            Condition(HOLDS, "children", children=1),
        )
    )


def set_up(world: World) -> None:
    for path in (OUTSIDE, HOLDS):
        world.network.tree.apply(server.Create(path))


def made_before(world: World) -> Script:
    yield from gates.ensure_gates(world.paths.root)


def seen(nodes: Mapping[str, Any], path: str) -> Seen:
    """The znode as it is now."""
    node = nodes.get(path)
    if node is None:
        return Seen(None)
    return Seen(Node(node.data, node.version, 0, 0, 0, 0, 0), list(node.children))


def change(world: World, condition: Condition, *, fit: bool) -> None:
    """Somebody makes the znode as the condition wants it, or not so."""
    if seen(world.nodes, condition.path).fits(condition) is fit:
        return
    apply = world.network.tree.apply
    if condition.kind == "value":
        apply(server.SetData(HOLDS, condition.value if fit else world.rng.choice(VALUES)))
    elif condition.kind == "children":
        apply(server.Create(f"{HOLDS}/child") if fit else server.Delete(f"{HOLDS}/child"))
    elif condition.path == COMES_AND_GOES:
        there = (condition.kind == "exists") is fit
        apply(server.Create(COMES_AND_GOES) if there else server.Delete(COMES_AND_GOES))
    note(world)


def note(world: World) -> None:
    """Remember which gates could have been opened now or earlier."""
    for task in waiting(world):
        if task.gate is not None:
            task.could_open |= seen(world.nodes, task.gate.path).fits(task.gate)


def waiting(world: World) -> list[Meant]:
    node = world.nodes.get(world.paths.gates)
    names = node.children if node is not None else ()
    found = (parse_gate(name) for name in names)
    tasks = world.auditor.tasks
    paths = [world.paths.task(each.plan, each.entry.task) for each in found if each]
    return [tasks[path] for path in paths if path in tasks]


def storm(world: World) -> None:
    """A znode outside changes by chance."""
    if world.rng.random() < CHANGES:
        change(world, drawn(world.rng), fit=world.rng.random() < 0.5)
    note(world)


def is_one_to_open(world: World) -> bool:
    """As a watch would tell; in vain now and then."""
    tasks = waiting(world)
    fit = any(seen(world.nodes, task.gate.path).fits(task.gate) for task in tasks if task.gate)
    return fit or (bool(tasks) and world.chance(0.05))


def keep(world: World) -> Script:
    """What a worker that watches does: list the gates, look at the znode of one, open it."""
    paths = world.paths
    names = yield from children_watched(paths.gates)
    read = yield from gates.read_gates(paths, names or ())
    conditions = [(each.name, Condition.from_bytes(each.sealed)) for each in read if each.sealed]
    if not conditions:
        return
    name, condition = world.rng.choice(conditions)
    entry = parse_gate(name)
    assert entry is not None
    found = yield from gates.look_at(condition.path, condition.kind == "children")
    if found.fits(condition):
        value = found.node.data if found.node is not None else b""
        opening = Opening(name, entry, b"v" + value)
        yield from gates.open_gates(paths, found.guard(condition), [opening])
    elif world.chance(0.1):
        yield from gates.open_gates(paths, [], [Opening(name, entry, LATE)])


def judge_opening(task: Meant, argument: bytes, now: Seen) -> None:
    """S17, when the argument of a gate is made: its condition holds, or has held meanwhile."""
    gate = task.gate
    assert gate is not None
    if argument == LATE:
        return
    if gate.kind in ("exists", "value"):
        if not now.fits(gate) or now.node is None or argument != b"v" + now.node.data:
            raise Violation(
                f"S17 {task.name} is opened with {argument!r}, and {gate.text} does not hold so"
            )
    elif not (task.could_open or now.fits(gate)):
        raise Violation(f"S17 {task.name} is opened, and {gate.text} never held")


def help_on(world: World) -> bool:
    """Nothing goes on: make true what a gate waits for."""
    tasks = waiting(world)
    if tasks and tasks[0].gate is not None:
        change(world, tasks[0].gate, fit=True)
    return bool(tasks)


def judge_end(world: World) -> None:
    node = world.nodes.get(world.paths.gates)
    if node is not None and node.children:
        raise Violation(f"L3 gates are left: {sorted(node.children)}")


def opened_with(task: Meant, names: Collection[str]) -> int:
    """How many arguments a gate has of its own: one, from its opening on."""
    if task.gate is None:
        return 0
    opened = ARGUMENT in names
    if task.cut:  # decided while it stood there: it is never opened
        if opened:
            raise Violation(f"S18 {task.name} was decided while it waited, and is opened")
        return 0
    if len(task.places) == 1 and opened is task.places[0].startswith(f"{ROOT}/gates/"):
        raise Violation(f"S17 {task.name} stands at {task.places}, opened: {opened}")
    return int(opened)
