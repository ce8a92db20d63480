"""What a server starts with: the tree and the sessions of its data folder, or new ones."""

from __future__ import annotations

import gc
from collections.abc import Hashable

from zkplan.embedded.acl import Who
from zkplan.embedded.database import remedy
from zkplan.embedded.limits import Settings
from zkplan.embedded.storage import Saved, Storage
from zkplan.embedded.storage_errors import StorageDamaged
from zkplan.embedded.tree import Tree


def load(settings: Settings) -> tuple[Storage | None, Tree, Saved]:
    """Open the data folder, which whoever calls has to close. Raises StorageError.

    Gives the tree instead of the saved nodes; without a data folder there is no storage.
    """
    data, limits = settings.data, settings.limits
    if data is None:
        tree = Tree(limits, system_nodes=True, identities=_identities)
        return None, tree, Saved(0, 0, [], [])
    storage = Storage(data, settings.sync)
    # A million new objects, and no garbage among them: to look for some would take long.
    collecting = gc.isenabled()
    gc.disable()
    try:
        saved = storage.load()
        is_new = not saved.nodes
        tree = Tree(limits, system_nodes=is_new, track_changes=True, identities=_identities)
        if not is_new:
            try:
                tree.restore(saved.zxid, saved.nodes)
            except ValueError as error:
                raise StorageDamaged(f"{data} holds no tree: {error}. {remedy(data)}") from error
        return storage, tree, saved._replace(nodes=[])
    except BaseException:
        storage.close()
        raise
    finally:
        if collecting:
            gc.enable()


def _identities(watcher: Hashable) -> Who:
    return watcher.identities  # type: ignore[attr-defined,no-any-return]
