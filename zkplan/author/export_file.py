"""Write and read the file of an export: compressed lines, each sealed for its plan and znode.

    {"zkplan": "plan archive", "format": 3, "name": "nightly", "creates": 12, ...}
    {"znode": "", "text": "{\"name\":\"nightly\", ...}"}
    {"znode": "task-0000000005", "base64": "ejFU..."}
    {"znode": "task-0000000005/ready", "text": "2", "version": 1}
    ...
    {"end": "plan archive", "znodes": 57, "sha256": "..."}

The digest covers all bytes before the last line. So a file that was cut short, changed or glued
together is refused before anything in it is used. `zcat FILE | less` shows the file.

A blob of a plan with a store comes, in pieces, before the first znode that refers to it:

    {"blob": "0000000005.1-0f3a...", "base64": "emti..."}

The name of a blob holds the digest of its bytes, which is also checked.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ..errors import OtherFormat, PayloadUndecodable, ZkplanError
from ..protocol import formats
from ..protocol.fields import NO_SECRET
from ..protocol.formats import ARCHIVE, require_format
from ..values.blobs import Digest
from ..values.keyring import Key, Ring, without_proof
from .export_restore import Piece
from .export_snapshot import Znode

KIND = "plan archive"
ABOUT = (
    "A plan of zkplan: one line for each znode, its path below the plan, its data as text or "
    "base64; `zkplan plan import FILE` makes a plan of it. It holds code that workers will run."
)
#: A ZooKeeper request carries 1 MB. Base64 adds a third, and JSON doubles the quotes in a text.
LINE_BYTES_MAX = 3 * 1024 * 1024
#: The edges of the widest join, its `incomplete` mark and its publication, with some margin.
VERSION_MAX = 1_000_000
COUNTER_MAX = 2**31 - 1

_NUMBER = "[0-9]{10}"
_LIMITS = "(~[a-z0-9._-]{1,40}){0,8}"
_ENTRY = rf"[0-9]{{4}}-{_NUMBER}\.(0|[1-9][0-9]{{0,9}})\.(0|[1-9][0-9]{{0,9}})"
_QUEUE = r"(?!\.\.?(/|$))[a-z0-9._-]{1,40}"
_SHAPE = re.compile(
    rf"|add-count|done|history|ready|(runnable|queues/{_QUEUE})/{_ENTRY}{_LIMITS}|queues(/{_QUEUE})?|"
    rf"(delayed/[0-9]{{13}}-|gates/){_ENTRY}(\.{_QUEUE}{_LIMITS})?|"
    rf"dead/{_NUMBER}|results/{_NUMBER}|"
    rf"add-ids/(key-[0-9a-f]{{32}}|shared-[0-9a-f]{{32}}\.[0-9]{{1,6}})|task-{_NUMBER}(/[A-Za-z][\w.-]{{0,200}})?",
    re.ASCII,
)

_BLOB = re.compile(rf"({_NUMBER}\.[0-9]{{1,10}}|add)-[0-9a-f]{{32}}", re.ASCII)


class Header(NamedTuple):
    """The first line of the file. `creates` counts the children that the plan has ever had, `tasks`
    the unfinished tasks."""

    name: str
    uid: str
    state: str
    tasks: int
    creates: int
    origin: str
    exported: float


_private = partial(os.open, mode=0o600)


class ArchiveWriter:
    """Writes a file beside `target`, and renames it to `target` once it is complete and on the
    disk."""

    def __init__(self, target: Path, header: Header, blobs: bool = False) -> None:
        self._target, self._origin = target, header.origin
        self._half = target.with_name(f".{target.name}.{os.getpid()}.half")
        self._digest = hashlib.sha256()
        # The file holds arguments and results, so only its owner may read it, as with the data of
        # an embedded server.
        self._raw: BinaryIO = open(self._half, "xb", opener=_private)  # noqa: SIM115
        # The gzip header gets no name and no time, so that equal plans give equal bytes.
        self._file = gzip.GzipFile("", "wb", 6, self._raw, 0)
        self.znodes = 0
        head = {"zkplan": KIND, "format": ARCHIVE, "about": ABOUT, **header._asdict()}
        self._write(head)

    def add(self, znode: Znode) -> None:
        if not _SHAPE.fullmatch(znode.path):
            raise ZkplanError(
                f"{self._origin} has a znode {znode.path!r:.100}, which zkplan did not make: "
                "delete it or move it away, then export the plan again"
            )
        line: dict[str, Any] = {"znode": znode.path}
        if znode.data.isascii() and (text := znode.data.decode("ascii")).isprintable():
            if text:
                line["text"] = text
        else:
            line["base64"] = base64.b64encode(znode.data).decode()
        if znode.version:
            line["version"] = znode.version
        self._write(line)
        self.znodes += 1

    def add_piece(self, piece: Piece) -> None:
        """Add a piece. The pieces of a blob must be consecutive, before the znodes that refer to
        it."""
        self._write({"blob": piece.blob, "base64": base64.b64encode(piece.data).decode()})

    def _write(self, line: dict[str, Any]) -> None:
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        self._digest.update(data)
        self._file.write(data)

    def finish(self) -> str:
        """End the file and give it its name. Returns the digest. Never overwrites a file."""
        digest = self._digest.hexdigest()
        self._write({"end": KIND, "znodes": self.znodes, "sha256": digest})
        self._file.close()
        self._raw.flush()
        os.fsync(self._raw.fileno())
        if self._target.exists():
            raise FileExistsError(
                f"{self._target} exists now: another program has made the file meanwhile"
            )
        self._half.replace(self._target)
        folder = os.open(self._target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return digest

    def __enter__(self) -> ArchiveWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()
        self._half.unlink(missing_ok=True)


@contextmanager
def open_archive(file: Path) -> Iterator[tuple[Header, Iterator[Znode | Piece]]]:
    """The header of an archive, and its znodes and pieces of blobs, in order.

    Raises PayloadUndecodable, which names the damage, and ZkplanError if the file cannot be read.
    Damage may show only after the last znode, so trust nothing before the end.
    """
    try:
        unpacked = gzip.open(file)  # noqa: SIM115 - a `with` here would catch the caller's errors
    except OSError as error:
        raise ZkplanError(f"{file} cannot be read: {error.strerror or error}") from error
    with unpacked:
        lines = _Lines(file, unpacked)
        yield lines.header(), lines.items()


class _Lines:
    def __init__(self, file: Path, unpacked: Any) -> None:
        self._file = file
        self._unpacked = unpacked
        self._digest = hashlib.sha256()
        self._before = self._digest

    def _wrong(self, why: str) -> PayloadUndecodable:
        return PayloadUndecodable(f"{self._file} cannot be imported: {why}")

    def _line(self) -> dict[str, Any]:
        raw = self._read()
        try:
            line = json.loads(raw) if raw.endswith(b"\n") else None
        except (ValueError, RecursionError):
            line = None
        if not isinstance(line, dict):
            raise self._wrong("it is not a plan exported by zkplan, or it was cut short or damaged")
        self._before = self._digest.copy()
        self._digest.update(raw)
        return line

    def _read(self) -> bytes:
        try:
            return bytes(self._unpacked.readline(LINE_BYTES_MAX))
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise self._wrong(
                f"it is not a plan exported by zkplan, or it was cut short or damaged ({error})"
            ) from None
        except OSError as error:
            raise ZkplanError(f"{self._file} cannot be read: {error}") from error

    def header(self) -> Header:
        line = self._line()
        if line.get("zkplan") != KIND:
            raise self._wrong("it is not a plan exported by zkplan")
        try:
            require_format(line.get("format"), ARCHIVE)
        except OtherFormat as error:
            raise OtherFormat(f"{self._file} was {error}") from None
        header = Header(*(line.get(name) for name in Header._fields))  # type: ignore[arg-type]
        numbers = (header.tasks, header.creates)
        if not all(type(n) is int and 0 <= n <= COUNTER_MAX for n in numbers):
            raise self._wrong("its header is damaged")
        if type(header.name) is not str or type(header.uid) is not str:
            raise self._wrong("its header is damaged")
        return header

    def items(self) -> Iterator[Znode | Piece]:
        count, task, blob, digest = 0, "", "", Digest()
        while True:
            line = self._line()
            if blob and line.get("blob") != blob:
                if blob.rpartition("-")[2] != digest.hex():
                    raise self._wrong(f"the blob {blob} is damaged")
                blob = ""
            if "end" in line:
                break
            if "blob" in line:
                piece = self._piece(line)
                if not blob:
                    blob, digest = piece.blob, Digest()
                digest.update(piece.data)
                yield piece
                continue
            znode = self._znode(line)
            here, _, name = znode.path.partition("/")
            if here.startswith("task-"):
                if name and here != task:
                    raise self._wrong(f"{znode.path} does not follow its task")
                task = here
            if not here and count:
                raise self._wrong("it holds two plans")
            count += 1
            yield znode
        if line.get("znodes") != count or line.get("sha256") != self._before.hexdigest():
            raise self._wrong("its checksum is wrong: the file was damaged or changed")
        if self._read():
            raise self._wrong("there is data after its end")

    def _piece(self, line: dict[str, Any]) -> Piece:
        blob = line["blob"]
        if type(blob) is not str or not _BLOB.fullmatch(blob):
            raise self._wrong(f"{blob!r:.100} is not the name of a blob")
        try:
            return Piece(blob, base64.b64decode(line.get("base64", b"!"), validate=True))
        except (TypeError, ValueError):
            raise self._wrong(f"the data of the blob {blob} is damaged") from None

    def _znode(self, line: dict[str, Any]) -> Znode:
        path, version = line.get("znode"), line.get("version", 0)
        text, packed = line.get("text", ""), line.get("base64")
        if type(path) is not str or not _SHAPE.fullmatch(path):
            raise self._wrong(f"{path!r:.100} is not a znode of a plan")
        counts = path.startswith("task-") and path.endswith("/ready")
        if type(version) is not int or not 0 <= version <= VERSION_MAX * counts:
            raise self._wrong(f"{path} has an impossible version")
        try:
            data = text.encode() if packed is None else base64.b64decode(packed, validate=True)
        except (AttributeError, TypeError, ValueError):
            raise self._wrong(f"the data of {path} is damaged") from None
        return Znode(path, data, version)


# ---- Each line of an exported file is sealed for the plan of the file, and for its znode.
#
# The keys are those that the user gave, never those that an embedded server made for itself, which
# stay in its folder. Without keys the lines are not sealed.


class FileSeals:
    """Seals and opens the lines of one file. `uid` is the uid of its plan."""

    def __init__(self, keys: Sequence[Key], uid: str, checks: bool = True) -> None:
        """With `checks` False, lines that were not sealed with these keys are opened, too, unless
        they are encrypted."""
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
            data = self._opened(znode, data)
        except PayloadUndecodable as error:
            unchecked = ", or import it unchecked (--any-secret)" if self._checks else ""
            raise PayloadUndecodable(
                f"{file}: {znode.path or 'the plan'} cannot be opened with the secret of this "
                f"client: {error}. Give the secret that the file was exported with (secret-files)"
                f"{unchecked}"
            ) from None
        return znode._replace(data=data)

    def _opened(self, znode: Znode, data: bytes) -> bytes:
        if self._ring is not None:
            try:
                return self._ring.open(self._place(znode), data)
            except PayloadUndecodable:
                if self._checks:
                    raise
        if not self._checks:
            return without_proof(data)
        if data.startswith(formats.SEALED):
            raise PayloadUndecodable(NO_SECRET)
        return data

    def opened(self, file: Path, items: Iterable[Znode | Piece]) -> Iterator[Znode | Piece]:
        for item in items:
            yield self.open(file, item) if isinstance(item, Znode) else item

    def _place(self, znode: Znode) -> bytes:
        return f"{self._uid}/{znode.path}".encode()
