"""A store: a folder below any fsspec URL, with one folder for each plan."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import StoredValueLost, StoreUnavailable, ZkplanError
from ..text import without_login
from .blob import Bytes
from .reference import PART

#: A larger value goes to the store, unless another limit is given; and the largest limit.
INLINE_LIMIT, INLINE_LIMIT_MAX = 32 * 1024, 512 * 1024
#: Bytes that are handed to the file system at once: some copy what they are given.
CHUNK_BYTES = 8 * 1024 * 1024


class Store:
    """Reads and writes blobs by name. It is thread-safe.

    A blob is written whole or not at all, and it is durable when `write` returns, as far as the
    file system can promise that. Blobs are never changed: a name is only written again with the
    same bytes.
    """

    def __init__(self, url: str, inline_limit: int = INLINE_LIMIT) -> None:
        """Values of more than `inline_limit` bytes go here. Raises ZkplanError for a limit out of
        range, and for a URL that fsspec does not know or that needs another package."""
        if type(inline_limit) is not int or not 0 <= inline_limit <= INLINE_LIMIT_MAX:
            raise ZkplanError(
                f"inline_limit must be 0 to {INLINE_LIMIT_MAX} bytes, not {inline_limit!r}"
            )
        self.inline_limit = inline_limit
        #: For people: without a password.
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
        self._is_local = "file" in _names(self._fs.protocol)
        self._was_there = self._is_local and os.path.isdir(self._root)

    def __repr__(self) -> str:
        return f"<Store {self.url}>"

    def write(self, folder: str, name: str, chunks: Iterable[Bytes]) -> None:
        """Raises StoreUnavailable: it is away, full, or read-only."""
        path = self._path(folder, name)
        try:
            if self._is_local:
                self._write_file(path, chunks)
            else:
                with self._fs.open(path, "wb") as file:
                    _write(file, chunks)
        except Exception as error:
            raise self._unavailable(f"{name} cannot be written", error) from error

    def read(self, folder: str, name: str) -> bytearray:
        """Raises StoredValueLost if there is no such blob, StoreUnavailable if that is unknown."""
        path = self._path(folder, name)
        try:
            with self._fs.open(path, "rb") as file:
                return _read(file, int(file.size))
        except FileNotFoundError:
            if not self.names(folder):
                raise StoreUnavailable(
                    f"the store {self.url} has nothing of {folder}: its author uses another store, "
                    "or the folder was deleted"
                ) from None
            raise StoredValueLost(
                f"{folder}/{name} is not in the store {self.url} any more"
            ) from None
        except Exception as error:
            raise self._unavailable(f"{name} cannot be read", error) from error

    def names(self, folder: str) -> list[str]:
        """The blobs of a plan, and what a writer that died has left. Raises StoreUnavailable."""
        try:
            self._fs.invalidate_cache()
            paths = self._fs.ls(self._path(folder), detail=False)
        except FileNotFoundError:
            return []
        except Exception as error:
            raise self._unavailable(f"{folder} cannot be listed", error) from error
        return sorted(path.rstrip("/").rpartition("/")[2] for path in paths)

    def delete(self, folder: str, names: Sequence[str]) -> None:
        """Delete blobs; those that are gone already are no error. Raises StoreUnavailable."""
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
            return
        except Exception as error:
            raise self._unavailable(f"{folder} cannot be deleted", error) from error

    def _path(self, folder: str, name: str = "") -> str:
        return "/".join(part for part in (self._root.rstrip("/"), folder, name) if part)

    def _write_file(self, path: str, chunks: Iterable[Bytes]) -> None:
        """The rename makes it whole, the two fsync make it last: a reference follows."""
        folder = os.path.dirname(path)
        if not os.path.isdir(folder):
            if self._was_there and not os.path.isdir(self._root):
                # Made anew, it would hide the values that come back with the old one.
                raise FileNotFoundError(f"its folder {self._root} is gone, unmounted perhaps")
            os.makedirs(self._root, mode=0o700, exist_ok=True)
            os.makedirs(folder, mode=0o700, exist_ok=True)
            self._was_there = True
        draft = f"{path}.{secrets.token_hex(4)}{PART}"
        try:
            with open(draft, "wb") as file:
                _write(file, chunks)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, path)
        except BaseException:
            if os.path.exists(draft):
                os.unlink(draft)
            raise
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _unavailable(self, what: str, error: Exception) -> StoreUnavailable:
        return StoreUnavailable(
            f"the store {self.url} cannot be used: {what}: {type(error).__name__}: {error}"
        )


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
            break  # shorter than it was said to be: the digest will tell
        view[at : at + len(found)] = found
        at += len(found)
    return data


def _names(protocol: str | Sequence[str]) -> Sequence[str]:
    return (protocol,) if isinstance(protocol, str) else protocol
