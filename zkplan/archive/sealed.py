"""The lines of an exported file are sealed for the file: for its plan, and for their znodes.

The keys are those that the user gave, never those that an embedded server made for itself, which
stay in its folder. Without keys the lines are as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ..errors import PayloadUndecodable
from ..protection.keys import Key
from ..protection.ring import Ring, without_proof
from ..protocol import formats
from ..protocol.unproven import SEALED
from .blobs import Piece
from .picture import Znode


class FileSeals:
    """Seals and opens the lines of one file. `uid` is that of its plan."""

    def __init__(self, keys: Sequence[Key], uid: str, checks: bool = True) -> None:
        """Unless it `checks`, what is not sealed with these keys is opened as far as that goes."""
        self._ring = Ring(keys, b"file") if keys else None
        self._uid, self._checks = uid, checks

    def seal(self, znode: Znode) -> Znode:
        if self._ring is None or not znode.data:
            return znode
        return znode._replace(data=self._ring.seal(self._place(znode), znode.data))

    def open(self, file: Path, znode: Znode) -> Znode:
        """Raises PayloadUndecodable, which names the file and the znode."""
        data = znode.data
        try:
            if not data:
                return znode
            if not self._checks:
                data = without_proof(data)
            elif self._ring is not None:
                data = self._ring.open(self._place(znode), data)
            elif data.startswith(formats.SEALED):
                raise PayloadUndecodable(SEALED)
        except PayloadUndecodable as error:
            raise PayloadUndecodable(
                f"{file}: {znode.path or 'the plan'} cannot be opened with the secret of this "
                f"client: {error}. Give the secret that the file was exported with "
                "(secret-files), or import it unchecked (--any-secret)"
            ) from None
        return znode._replace(data=data)

    def opened(self, file: Path, items: Iterable[Znode | Piece]) -> Iterator[Znode | Piece]:
        for item in items:
            yield self.open(file, item) if isinstance(item, Znode) else item

    def _place(self, znode: Znode) -> bytes:
        return f"{self._uid}/{znode.path}".encode()
