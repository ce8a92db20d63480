"""What a server starts with: the tree and the sessions of its data folder, or new ones."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import NamedTuple

from zkplan.embedded.database import remedy
from zkplan.embedded.limits import Limits, Settings
from zkplan.embedded.sessions import SavedSession
from zkplan.embedded.storage import Saved, Storage
from zkplan.embedded.storage_errors import StorageDamaged
from zkplan.embedded.tree import Tree


class Loaded(NamedTuple):
    """All of a server but its sockets; without a data folder there is no storage."""

    storage: Storage | None
    tree: Tree
    last_session: int
    sessions: list[SavedSession]


def load(settings: Settings) -> Loaded:
    """Open the data folder, which whoever calls has to close. Raises StorageError."""
    data, limits = settings.data, settings.limits
    if data is None:
        return Loaded(None, _tree(limits, is_new=True, is_stored=False), 0, [])
    storage = Storage(data, settings.sync)
    # A million new objects, and no garbage among them: to look for some would take long.
    collecting = gc.isenabled()
    gc.disable()
    try:
        saved = storage.load()
        return Loaded(storage, _restored(data, saved, limits), saved.last_session, saved.sessions)
    except BaseException:
        storage.close()
        raise
    finally:
        if collecting:
            gc.enable()


def _restored(data: Path, saved: Saved, limits: Limits) -> Tree:
    tree = _tree(limits, is_new=not saved.nodes, is_stored=True)
    if saved.nodes:
        try:
            tree.restore(saved.zxid, saved.nodes)
        except ValueError as error:
            raise StorageDamaged(f"{data} holds no tree: {error}. {remedy(data)}") from error
    return tree


def _tree(limits: Limits, *, is_new: bool, is_stored: bool) -> Tree:
    return Tree(
        system_nodes=is_new,
        track_changes=is_stored,
        max_nodes=limits.znodes,
        max_bytes=limits.tree_bytes,
        max_watches=limits.watches,
        max_watch_bytes=limits.watch_bytes,
        max_total_watch_bytes=limits.watch_total_bytes,
        identities=lambda peer: peer.identities,  # type: ignore[attr-defined]
    )
