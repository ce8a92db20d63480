"""Keys: a plan's key names that plan alone while it stands, a task's key one task of its plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..errors import PayloadUndecodable
from .author import create_plan_with
from .layout import Paths, number_of, parse_number
from .records import PlanRecord, control_from_bytes
from .requests import (
    Applied,
    Check,
    Create,
    Delete,
    Multi,
    Node,
    Op,
    ReadData,
    ReadMany,
    Reason,
    Refused,
    SetData,
    Step,
)
from .shared import rejected
from .unproven import require_proven


class Held(NamedTuple):
    """Which plan has a key, with the versions that were read. `plan` is None where only the key was
    left: somebody else deleted the plan's znodes."""

    path: str
    version: int
    number: str
    plan: Node | None
    done: Node | None
    ready: Node | None

    @property
    def is_finished(self) -> bool:
        """Whether the plan is done or cancelled: it never gets work again.

        Raises PayloadRefused if `done` is not sealed for its place."""
        if self.done is not None:
            require_proven(self.done.data)
            return True
        return self.ready is not None and control_from_bytes(self.ready.data) == "cancelled"


def find_key(paths: Paths, key: str) -> Step[Held | None]:
    """The plan that has the key, or None. Raises PayloadUndecodable if the key's znode is damaged.

    The plan is read before the key is read again. Whoever moves the key raises the version of the
    plan's znode, so both versions together stand for one moment, even if the key's znode was
    deleted and made again in between.
    """
    path = paths.key(key)
    node = yield ReadData(path)
    while node is not None:
        number = _number_in(path, node.data)
        at = paths.plan(number)
        reads = [ReadData(each) for each in (at, f"{at}/done", f"{at}/ready", path)]
        plan, done, ready, again = yield ReadMany(reads)
        if again is not None and again.data == node.data:
            return Held(path, again.version, number, plan, done, ready)
        node = again
    return None


def create_keyed(paths: Paths, record: PlanRecord, replace: bool) -> Step[tuple[str, bool]]:
    """Create a plan under its key, or find the one that has it. Returns its number, and whether it
    is new.

    With `replace`, a plan that is done or cancelled loses the key to the new one, in the
    transaction that creates that. It stays otherwise.
    """
    while True:
        held = yield from find_key(paths, record.key)
        if held is not None and held.plan is not None and not (replace and held.is_finished):
            if (yield from _still(paths, held)):
                return held.number, False
            continue
        made = yield from create_plan_with(paths, record, key_ops(paths, record.key, held))
        if isinstance(made, str):
            return made, True
        yield from mend_keys(paths, made)


def key_ops(paths: Paths, key: str, held: Held | None) -> Callable[[str], list[Op]]:
    """What gives the key to a plan of the same transaction, by its number, where `held` was
    read."""

    def ops(number: str) -> list[Op]:
        data = f"{number} {key}".encode()
        if held is None:
            return [Create(paths.key(key), data)]
        taken: list[Op] = [SetData(held.path, data, held.version)]
        if held.plan is None:
            return taken  # numbers are never given again: that plan cannot come back
        # That it is finished needs no check, for that is final. Its removal relies on this version,
        # too: see `freeing`.
        return [SetData(paths.plan(held.number), held.plan.data, held.plan.version), *taken]

    return ops


def mend_keys(paths: Paths, refused: Refused) -> Step[None]:
    """After the operations of `key_ops` were refused: make `ROOT/keys`, or raise what would be
    refused again."""
    if refused.reason is Reason.NO_NODE and refused.path.startswith(f"{paths.keys}/"):
        yield from ensure_keys(paths)
    elif refused.reason not in (Reason.NO_NODE, Reason.NODE_EXISTS, Reason.BAD_VERSION):
        raise rejected("giving the plan its key", refused)


def ensure_keys(paths: Paths) -> Step[None]:
    """Create `ROOT/keys`, which a root has from its first key on."""
    answer = yield Multi([Create(paths.keys)])
    if isinstance(answer, Refused) and answer.reason is not Reason.NODE_EXISTS:
        raise rejected(f"creating {paths.keys}", answer)


def freeing(plan_path: str, plan: Node) -> Step[list[Op]]:
    """What deletes the plan's znode, and with it its key, if that is still the plan's own.

    `plan` was read before this. A move of the key since then has raised its version.
    """
    gone: list[Op] = [Delete(plan_path, plan.version)]
    if b'"key"' not in plan.data:
        return gone
    try:
        key = PlanRecord.from_bytes(plan.data).key
    except PayloadUndecodable:
        return gone
    root, _, name = plan_path.rpartition("/")
    path = Paths(root).key(key)
    node = yield ReadData(path)
    is_own = node is not None and node.data[:10] == number_of(name).encode()
    return [Delete(path, node.version), *gone] if is_own else gone


def _still(paths: Paths, held: Held) -> Step[bool]:
    """Whether the plan has the key now: the server that was asked may be behind."""
    assert held.plan is not None
    checks = [Check(held.path, held.version), Check(paths.plan(held.number), held.plan.version)]
    return isinstance((yield Multi(checks)), Applied)


def _number_in(path: str, data: bytes) -> str:
    require_proven(data)
    number = parse_number(data[:10].decode(errors="replace"))
    if number is None:
        raise PayloadUndecodable(
            f"{path} names no plan: somebody changed it by hand; delete it, and the key is free"
        )
    return number
