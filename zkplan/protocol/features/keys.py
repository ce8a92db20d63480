"""Keys: texts that name one plan under a root, or one task of a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...errors import PayloadUndecodable
from ..fields import require_known_key, require_proven
from ..layout import Paths, author_mark, number_of, parse_number
from ..records import PlanRecord, control_from_bytes, control_to_bytes
from ..requests import (
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
from ..transactions import ensure, require_race
from .author import create_plan_with

#: An author without a session counts as living for this many milliseconds after its last add.
LEASE_MS = 60_000
KeyOps = Callable[[str], list[Op]]


class Held(NamedTuple):
    """The plan that has a key, with the versions that were read. `plan` is None if somebody deleted
    its znodes by hand."""

    path: str
    version: int
    number: str
    plan: Node | None
    done: Node | None
    ready: Node | None

    @property
    def is_finished(self) -> bool:
        """Whether the plan is done or cancelled. Raises PayloadRefused if `done` is not sealed for
        its place."""
        if self.done is not None:
            require_proven(self.done.data)
            return True
        return self.ready is not None and control_from_bytes(self.ready.data) == "cancelled"

    @property
    def is_defined(self) -> bool:
        """Whether the plan was marked ready, or has ended."""
        return self.ready is not None or self.done is not None


def find_key(paths: Paths, key: str) -> Step[Held | None]:
    """The plan that has the key, or None. Raises PayloadUndecodable if the key's znode is damaged.

    The plan is read before the key is read again. A move of the key raises the version of the
    plan's znode, so both versions belong to one moment, even if the key's znode was deleted and
    made again in between.
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


def create_keyed(
    paths: Paths,
    record: PlanRecord,
    replace: bool,
    warn: Callable[[str], None] = lambda warning: None,
    *,
    lease_ms: int = 0,
    marks: Callable[[str], None] = lambda mark: None,
) -> Step[tuple[str, bool]]:
    """Create a plan with its key, or find the plan that has the key. Returns its number, and
    whether it is new. See `create_plan_with` for `warn` and the errors.

    The transaction that creates the plan takes the key from a plan that was not marked ready before
    its author was gone, and cancels that plan. With `replace` it also takes the key from a plan
    that is done or cancelled, which stays as it is. An author lives as long as its session and the
    mark of its plan; before the mark is made, `marks` is called with its path. With `lease_ms` the
    author has no session, and lives for that time after each add.
    """

    def mark(number: str) -> Op:
        path = author_mark(paths.plan(number), record.uid)
        marks(path)
        return Create(path, b"%d" % lease_ms) if lease_ms else Create(path, ephemeral=True)

    while True:
        held = yield from find_key(paths, record.key)
        give = key_ops(paths, record.key, held)
        if held is not None and held.plan is not None and not (replace and held.is_finished):
            taken = None if held.is_defined else (yield from _taken_over(paths, record.key, held))
            if taken is None:
                if (yield from _still(paths, held)):
                    return held.number, False
                continue
            give = taken
        more = _with_mark(give, mark)
        made = yield from create_plan_with(paths, record, more, warn=warn)
        if isinstance(made, str):
            return made, True
        yield from mend_keys(paths, made)


def _with_mark(give: KeyOps, mark: Callable[[str], Op]) -> KeyOps:
    return lambda number: [mark(number), *give(number)]


def _taken_over(paths: Paths, key: str, held: Held) -> Step[KeyOps | None]:
    """Cancel a plan that is not marked ready, and take its key. None if its author lives.

    An author that comes back finds `ready` and no `add-count`, so it can neither start the plan nor
    add to it. Its mark is never made again, so the transaction only proves that the mark is gone.
    If the author has no session, an add since then has raised the version of `add-count`. Nobody
    else can end or remove the plan meanwhile: that needs a `ready`, which refuses this transaction.
    """
    assert held.plan is not None
    path = paths.plan(held.number)
    require_known_key(path, held.plan.data)
    try:
        mark_path = author_mark(path, PlanRecord.from_bytes(held.plan.data).uid)
    except PayloadUndecodable:
        return None  # of another format, so its mark is not known
    mark, adds = yield ReadMany([ReadData(mark_path), ReadData(f"{path}/add-count")])
    if mark is not None and not (yield from _has_lapsed(paths, mark, adds)):
        return None
    ops: list[Op] = [Create(mark_path)] if mark is None else []
    ops.append(Delete(mark_path))
    if adds is not None:
        ops.append(Delete(f"{path}/add-count", -1 if mark is None else adds.version))

    def give(number: str) -> list[Op]:
        why = f"its author was gone, and plan {int(number)} has its key now"
        cancel = Create(f"{path}/ready", control_to_bytes("cancelled", why))
        return [cancel, *ops, SetData(held.path, f"{number} {key}".encode(), held.version)]

    return give


def _has_lapsed(paths: Paths, mark: Node, adds: Node | None) -> Step[bool]:
    """Whether the author of that mark has no session, and has added nothing for too long by the
    server's clock, whose current time a write gives."""
    if adds is None or not mark.data.isdigit():
        return False
    yield Multi([SetData(paths.keys)])
    now = yield ReadData(paths.keys)
    return now is not None and now.modified_ms - adds.modified_ms >= int(mark.data)


def key_ops(paths: Paths, key: str, held: Held | None) -> KeyOps:
    """Operations that give the key to a new plan, by its number. `held` has the key now."""

    def ops(number: str) -> list[Op]:
        data = f"{number} {key}".encode()
        if held is None:
            return [Create(paths.key(key), data)]
        taken: list[Op] = [SetData(held.path, data, held.version)]
        if held.plan is None:
            return taken  # the number of a plan never comes back
        # S12: a plan that is done may be retried. `freeing` relies on this version, too.
        path = paths.plan(held.number)
        is_done: list[Op] = [Check(f"{path}/done")] if held.done is not None else []
        return [SetData(path, held.plan.data, held.plan.version), *is_done, *taken]

    return ops


def mend_keys(paths: Paths, refused: Refused) -> Step[None]:
    """After a refusal of `key_ops`: make `ROOT/keys`, or raise if they would be refused again."""
    if refused.reason is Reason.NO_NODE and refused.path.startswith(f"{paths.keys}/"):
        yield from ensure(paths.keys)
    else:
        require_race(refused, "giving the plan its key")


def freeing(plan_path: str, plan: Node) -> Step[list[Op]]:
    """Delete the znode of a plan, and its key if the plan still has it. This is refused if the key
    moved since `plan` was read, because a move raises the version of the plan."""
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
    """Whether the plan still has the key: the server that was asked may be behind."""
    assert held.plan is not None
    checks = [Check(held.path, held.version), Check(paths.plan(held.number), held.plan.version)]
    return isinstance((yield Multi(checks)), Applied)


def _number_in(path: str, data: bytes) -> str:
    require_proven(data)
    number = parse_number(data[:10].decode(errors="replace"))
    if number is None:
        raise PayloadUndecodable(
            f"{path} does not name a plan: somebody changed it by hand; delete it to free the key"
        )
    return number
