"""Store blobs in a folder below any fsspec URL, one folder for each plan."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..basics.private import is_in_process_folder
from ..basics.settings_fields import INLINE_LIMIT, INLINE_LIMIT_MAX
from ..basics.text import without_login
from ..errors import StoredValueLost, StoreUnavailable, ZkplanError
from ..protocol import failpoints
from .blobs import HISTORY, ID_BYTES, PART, Bytes, Digest, key_of

#: The maximum of bytes passed to the file system at once, as some copy them.
CHUNK_BYTES = 8 * 1024 * 1024
#: The folder of a store whose files are named by its IDs, and the text in them.
IDS = "zkplan-store"
ID_TEXT = (
    b"zkplan knows this store by the name of this file: keep it, also in a copy of the store.\n"
)
_ID = re.compile(rf"[0-9a-f]{{{2 * ID_BYTES}}}", re.ASCII)


class Store:
    """Reads and writes blobs by name. Thread-safe.

    A blob is written completely or not at all, and is durable when `write` returns, if the file
    system promises that. (The store of a server in memory ends with the server.) Blobs never
    change: a second write of a name has the same bytes.
    """

    def __init__(self, url: str, inline_limit: int = INLINE_LIMIT) -> None:
        """Values of more than `inline_limit` bytes go here. Raises ZkplanError for a limit out of
        range, and for a URL that fsspec does not know or that needs another package. Raises
        StoreUnavailable if a file system that connects at once, such as FTP's, cannot."""
        if type(inline_limit) is not int or not 0 <= inline_limit <= INLINE_LIMIT_MAX:
            raise ZkplanError(
                f"inline_limit must be 0 to {INLINE_LIMIT_MAX} bytes, not {inline_limit!r}"
            )
        self.inline_limit = inline_limit
        #: Without a password.
        self.url = without_login(url)
        import fsspec  # here: most processes have no store

        try:
            self._fs, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise ZkplanError(
                f"the store {self.url!r} cannot be used: {str(error).replace(url, self.url)} "
                "(`file:///FOLDER` needs nothing; others need the package of fsspec for them, such "
                "as s3fs)"
            ) from error
        except Exception as error:
            raise self._unavailable("it cannot be reached", error) from error
        self._is_local = "file" in _names(self._fs.protocol)
        #: With a server in memory nothing has to survive a power cut.
        self._lasts = not (self._is_local and is_in_process_folder(self._root))
        self._was_there = self._is_local and os.path.isdir(self._root)
        self._id = ""

    def __repr__(self) -> str:
        return f"<Store {self.url}>"

    def identity(self) -> str:
        """The ID of this store, made if it has none. Raises StoreUnavailable.

        Two clients that write the first values at the same time may both make one. Then both are
        valid: they are in a list that only grows, so no file system has to decide who was first.
        """
        if not self._id:
            found = self.ids()
            if not found:
                found = [secrets.token_hex(ID_BYTES)]
                self.write(IDS, found[0], [ID_TEXT])
            self._id, self._was_there = found[0], self._is_local
        return self._id

    def ids(self) -> list[str]:
        """All IDs of this store: none before its first value. Raises StoreUnavailable."""
        return [name for name in self.names(IDS) if _ID.fullmatch(name)]

    def write(self, folder: str, name: str, chunks: Iterable[Bytes]) -> None:
        """Write a blob. Raises StoreUnavailable if the store is away, full, or read-only."""
        path = self._path(folder, name)
        try:
            if self._is_local:
                self._write_file(path, chunks)
            else:
                self._write_object(path, chunks)
        except StoreUnavailable:
            raise
        except FileNotFoundError as error:
            self._require_folder(f"{name} cannot be written")
            if not self._is_local or os.path.isdir(os.path.dirname(path)):
                raise self._unavailable(f"{name} cannot be written", error) from error
            raise StoreUnavailable(
                f"{name} is not written to the store {self.url}: its folder {folder} was deleted "
                "meanwhile, for example because its plan was removed"
            ) from error
        except Exception as error:
            raise self._unavailable(f"{name} cannot be written", error) from error

    def read(self, folder: str, name: str, of: str = "") -> Bytes:
        """Read a blob; `of` is the ID of the store that it was written to, if that is known. Raises
        StoredValueLost if the blob is gone, StoreUnavailable if the store cannot tell, or is
        another one than `of`."""
        path = self._path(folder, name)
        try:
            failpoints.reach("store.read")
            if not self._is_local:
                # This is one request, while `open` asks for the size first. And all readers of a
                # file of `memory://` share one position.
                found: bytes = self._fs.cat_file(path)
                return found
            with self._fs.open(path, "rb") as file:
                return _read(file, int(file.size))
        except FileNotFoundError as error:
            raise self._missing(folder, name, of, error) from None
        except Exception as error:
            raise self._unavailable(f"{name} cannot be read", error) from error

    def _missing(self, folder: str, name: str, of: str, error: Exception) -> ZkplanError:
        """The error for a blob that is not found. Raises StoreUnavailable."""
        names = self.names(folder)
        if name in names:  # the store was away, and has just come back
            return self._unavailable(f"{name} could not be read", error)
        if of and of not in (ids := self.ids()):
            return StoreUnavailable(
                f"the store {self.url} ({_with(ids)}) is another store than that of "
                f"{folder}/{name} ({_with([of])}): give authors and workers the same one "
                "(connect(store=...), --store or ZKPLAN_STORE). A file below "
                f"{IDS} in a store is named by its ID"
            )
        # A worker may have put a history into another store than the author's.
        if all(key_of(each) == HISTORY != key_of(name) for each in names):
            return StoreUnavailable(
                f"the store {self.url} holds nothing of {folder}: its author uses another store, "
                "or the folder was deleted"
            )
        return StoredValueLost(f"{folder}/{name} is not in the store {self.url} any more")

    def digest(self, folder: str, name: str) -> tuple[str, int] | None:
        """The digest of a blob and its length, read in chunks; None if it does not exist. Raises
        StoreUnavailable."""
        found, length = Digest(), 0
        try:
            for chunk in self.chunks(folder, name):
                found.update(chunk)
                length += len(chunk)
        except StoredValueLost:
            return None
        return found.hex(), length

    def chunks(self, folder: str, name: str, size: int = CHUNK_BYTES) -> Iterator[bytes]:
        """Read a file in pieces. Raises StoredValueLost if it is missing, and StoreUnavailable."""
        try:
            with self._fs.open(self._path(folder, name), "rb") as file:
                while chunk := file.read(size):
                    yield chunk
        except FileNotFoundError:
            raise StoredValueLost(f"{folder}/{name} is not in the store {self.url}") from None
        except Exception as error:
            raise self._unavailable(f"{name} cannot be read", error) from error

    def names(self, folder: str) -> list[str]:
        """The blobs of a plan, and the drafts of writers that died. Raises StoreUnavailable."""
        try:
            self._fs.invalidate_cache()
            paths = self._fs.ls(self._path(folder), detail=False)
        except FileNotFoundError:
            self._require_folder(f"{folder} cannot be listed")
            return []
        except Exception as error:
            raise self._unavailable(f"{folder} cannot be listed", error) from error
        return sorted(path.rstrip("/").rpartition("/")[2] for path in paths)

    def look(self, folder: str) -> None:
        """Raise StoreUnavailable if the store cannot be used now. Costs the same for any folder."""
        try:
            self._fs.info(self._path(folder))
        except FileNotFoundError:
            self._require_folder(f"{folder} cannot be found")
        except Exception as error:
            raise self._unavailable(f"{folder} cannot be found", error) from error

    def delete(self, folder: str, names: Sequence[str]) -> None:
        """Delete blobs, if they exist. Raises StoreUnavailable."""
        for name in names:
            try:
                self._fs.rm_file(self._path(folder, name))
            except FileNotFoundError:
                continue
            except Exception as error:
                raise self._unavailable(f"{name} cannot be deleted", error) from error

    def delete_folder(self, folder: str) -> None:
        """Delete a plan's folder with all blobs. Raises StoreUnavailable."""
        try:
            self._fs.rm(self._path(folder), recursive=True)
        except FileNotFoundError:
            self._require_folder(f"{folder} cannot be deleted")
        except Exception as error:
            raise self._unavailable(f"{folder} cannot be deleted", error) from error

    def _path(self, folder: str, name: str = "") -> str:
        return "/".join(part for part in (self._root.rstrip("/"), folder, name) if part)

    def _write_file(self, path: str, chunks: Iterable[Bytes]) -> None:
        """Write a file, complete by a rename and durable by two fsync, before its reference."""
        folder = os.path.dirname(path)
        if not os.path.isdir(folder):
            # A new folder would hide the values that come back with the old one.
            self._require_folder(f"{os.path.basename(path)} cannot be written")
            os.makedirs(self._root, mode=0o700, exist_ok=True)
            os.makedirs(folder, mode=0o700, exist_ok=True)
            self._was_there = True
        draft = f"{path}.{secrets.token_hex(4)}{PART}"
        try:
            with open(draft, "wb") as file:
                _write(file, chunks)
                file.flush()
                if self._lasts:
                    os.fsync(file.fileno())
            failpoints.reach("store.write")
            os.replace(draft, path)
        except BaseException:
            if os.path.exists(draft):
                os.unlink(draft)
            raise
        if self._lasts:
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        failpoints.reach("store.written")

    def _write_object(self, path: str, chunks: Iterable[Bytes]) -> None:
        """Write an object. It exists once its file is closed, so never close an incomplete one."""
        from fsspec.spec import AbstractBufferedFile

        file = self._fs.open(path, "wb")
        try:
            _write(file, chunks)
        except BaseException:
            if isinstance(file, AbstractBufferedFile):
                file.closed = True  # otherwise its finalizer would close it
                file.discard()
            else:  # of a file system that shows incomplete files
                file.close()
                self._fs.rm_file(path)
            raise
        file.close()

    def _require_folder(self, what: str) -> None:
        """Raise StoreUnavailable if this process has seen the folder of the store, and it is gone
        or has lost its ID: it may be the empty folder of a mount point."""
        seen = self._path(IDS, self._id) if self._id else self._root
        if self._was_there and not os.path.exists(seen):
            gone = FileNotFoundError(f"its folder {self._root} is gone, unmounted perhaps")
            raise self._unavailable(what, gone)

    def _unavailable(self, what: str, error: Exception) -> StoreUnavailable:
        return StoreUnavailable(
            f"the store {self.url} cannot be used: {what}: {type(error).__name__}: {error}"
        )


def _with(ids: Sequence[str]) -> str:
    return f"ID {' and '.join(ids)}" if ids else "it has no ID yet"


def _write(file: Any, chunks: Iterable[Bytes]) -> None:
    for chunk in chunks:
        view = memoryview(chunk)
        for start in range(0, len(view), CHUNK_BYTES):
            file.write(view[start : start + CHUNK_BYTES])


def _read(file: Any, size: int) -> bytearray:
    data = bytearray(size)
    at, view = 0, memoryview(data)
    while at < size:
        found = file.read(min(CHUNK_BYTES, size - at))
        if not found:
            break  # shorter than its size: the digest will not match
        view[at : at + len(found)] = found
        at += len(found)
    return data


def _names(protocol: str | Sequence[str]) -> Sequence[str]:
    return (protocol,) if isinstance(protocol, str) else protocol
