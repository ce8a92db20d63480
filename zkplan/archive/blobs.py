"""The blobs of a plan on their way into an exported file, and out of it into another store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from ..errors import PayloadUndecodable, StoredValueLost, ZkplanError
from ..store.compare import moved, names_in, references_in
from ..store.files import Store
from ..store.values import Values, folder_name
from .picture import Znode

#: Bytes of one line of the file, before base64.
PIECE_BYTES = 1024 * 1024


class Piece(NamedTuple):
    """A part of a blob, in order."""

    blob: str
    data: bytes


class Packer:
    """Gives the blobs of one plan, each once, as pieces for a file."""

    def __init__(self, values: Values, plan_path: str) -> None:
        self._values, self._plan_path = values, plan_path
        self._packed: set[str] = set()

    def pieces(self, znode: Znode) -> Iterator[Piece]:
        """What `znode` refers to and is not packed yet, so that it stands before the znode.

        Raises StoredValueLost, StoreUnavailable, and PayloadUndecodable if there is no store.
        """
        for reference in references_in(znode.data):
            if reference.name in self._packed:
                continue
            self._packed.add(reference.name)
            try:
                view = memoryview(self._values.blob(self._plan_path, reference))
            except (StoredValueLost, PayloadUndecodable) as error:
                told = f"{self._plan_path} cannot be exported: {znode.path}: {error}"
                raise type(error)(told) from None
            for start in range(0, len(view), PIECE_BYTES):
                yield Piece(reference.name, bytes(view[start : start + PIECE_BYTES]))


class Complete:
    """Checks that each blob that a file refers to stands in it, before what refers to it."""

    def __init__(self, file: Path, store: Store | None) -> None:
        self._file, self._store = file, store
        self._found: set[str] = set()

    def see_piece(self, piece: Piece) -> None:
        """Raises ZkplanError if there is no store to write it to."""
        if self._store is None:
            raise ZkplanError(
                f"{self._file} holds large values, which need a store, and none is configured "
                "here: give one that the workers reach, too (connect(store=...), --store or "
                "ZKPLAN_STORE)"
            )
        self._found.add(piece.blob)

    def see(self, znode: Znode) -> None:
        """Raises PayloadUndecodable for a blob that is missing."""
        missing = [name for name in names_in(znode.data) if name not in self._found]
        if missing:
            raise PayloadUndecodable(
                f"{self._file} cannot be imported: {znode.path} refers to {missing[0]}, which is "
                "not in the file"
            )


class Unpacker:
    """Writes the blobs of a file into the store, before the znodes that refer to them are given.
    The references say that store from then on."""

    def __init__(self, store: Store | None, plan_path: str, uid: str, created_ms: int) -> None:
        """`uid` is that of the plan's record, `created_ms` the time of creation of its znode."""
        self._store = store
        self.folder = folder_name(plan_path, uid, created_ms)

    def znodes(self, items: Iterable[Znode | Piece]) -> Iterator[Znode]:
        """The znodes, in order. Raises StoreUnavailable."""
        store = ""
        for blob, group in groupby(items, _blob_of):
            if blob and self._store is not None:
                store = store or self._store.identity()
                self._store.write(self.folder, blob, (item.data for item in group))
                continue
            for item in group:
                if isinstance(item, Znode):
                    yield item._replace(data=moved(item.data, store)) if store else item

    def undo(self) -> None:
        """Delete what was written. Raises StoreUnavailable."""
        if self._store is not None:
            self._store.delete_folder(self.folder)


def _blob_of(item: Znode | Piece) -> str:
    return item.blob if isinstance(item, Piece) else ""
