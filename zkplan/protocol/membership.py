"""Register a worker, and sign it off."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import ZooKeeperError
from .foreign import folder_restored
from .layout import PENDING, Paths
from .requests import Applied, Create, Delete, Multi, Op, ReadChildren, Reason, Step
from .shared import Registration, rejected


def register(
    paths: Paths, worker: str, data: bytes, uids: Iterator[str]
) -> Step[Registration | None]:
    """Create the ephemeral registration and the claims node of a worker. Returns None if another ID
    is needed.

    Raises TransactionRejected, ServerFull.
    """
    me = Registration(paths, worker, uids)
    answer = yield Multi([Create(me.worker_path, data, ephemeral=True), Create(me.claims_path)])
    if isinstance(answer, Applied):
        return me
    if (yield from folder_restored(answer)):
        # Not under this ID: an earlier copy of the transaction may be applied from now on.
        return None
    if answer.reason is Reason.NO_NODE:
        raise ZooKeeperError(f"{paths.root} has no worker and claims node znodes: {answer.path}")
    if answer.reason is not Reason.NODE_EXISTS:
        raise rejected(f"registering worker {worker}", answer)
    return None  # an earlier copy, perhaps in an expired session: take a new ID


def unregister(me: Registration) -> Step[bool]:
    """Delete the registration and the empty claims node together. Returns False if claims are left
    on it."""
    names = yield ReadChildren(me.claims_path)
    ops: list[Op] = [
        Delete(f"{me.claims_path}/{name}") for name in names or () if name.startswith(PENDING)
    ]
    ops += [Delete(me.worker_path), Delete(me.claims_path)]
    answer = yield Multi(ops)
    if isinstance(answer, Applied):
        return True
    # Something is left on the claims node. Others clear it as soon as they see that the worker is
    # gone.
    yield from sign_off(me.paths, me.worker)
    return False


def sign_off(paths: Paths, worker: str) -> Step[bool]:
    """Delete the registration of a worker before its session ends. Returns False if it has none.

    Only a caller that knows that the worker's process is dead may do this. What the process sent
    last may still arrive. As after the end of the session, a claim is refused from now on, and a
    commit as soon as its claim is released.
    """
    answer = yield Multi([Delete(paths.worker(worker))])
    return isinstance(answer, Applied) or (answer.repeated and answer.reason is Reason.NO_NODE)
