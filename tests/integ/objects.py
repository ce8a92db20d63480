"""A file system of fsspec that does as an object store: what is written is there once its file is
closed, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import fsspec
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem


class Objects(AbstractFileSystem):  # type: ignore[misc]
    """`objects://NAME`, in the memory of this process."""

    protocol = "objects"
    there: ClassVar[dict[str, bytes]] = {}
    #: The uploads that have neither ended nor been given up: a real store charges for their parts.
    uploads: ClassVar[set[str]] = set()
    #: Called with the path of an object before it is read.
    before_read: ClassVar[Callable[[str], None]] = staticmethod(lambda path: None)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        below = f"{self._strip_protocol(path)}/"
        names = {below + key[len(below) :].partition("/")[0] for key in self._below(path)}
        found = [self.info(name) for name in sorted(names)]
        return found if detail else [each["name"] for each in found]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        name = self._strip_protocol(path)
        if name in self.there:
            return {"name": name, "size": len(self.there[name]), "type": "file"}
        self._below(path)
        return {"name": name, "size": 0, "type": "directory"}

    def cat_file(self, path: str, start: Any = None, end: Any = None, **_: Any) -> bytes:
        name = self._strip_protocol(path)
        type(self).before_read(name)
        if name not in self.there:
            raise FileNotFoundError(path)
        return self.there[name][start:end]

    def rm_file(self, path: str) -> None:
        if self.there.pop(self._strip_protocol(path), None) is None:
            raise FileNotFoundError(path)

    def rm(self, path: str, recursive: bool = False, maxdepth: Any = None) -> None:
        for name in self._below(path):
            del self.there[name]

    def _open(self, path: str, mode: str = "rb", **options: Any) -> ObjectFile:
        return ObjectFile(self, path, mode, **options)

    def _below(self, path: str) -> list[str]:
        below = f"{self._strip_protocol(path)}/"
        found = [name for name in list(self.there) if name.startswith(below)]
        if not found:
            raise FileNotFoundError(path)
        return found


class ObjectFile(AbstractBufferedFile):  # type: ignore[misc]
    def _initiate_upload(self) -> None:
        self._parts: list[bytes] = []
        self.fs.uploads.add(self.path)

    def _upload_chunk(self, final: bool = False) -> bool:
        self._parts.append(self.buffer.getvalue())
        if final:
            self.fs.there[self.path] = b"".join(self._parts)
            self.fs.uploads.discard(self.path)
        return True

    def _fetch_range(self, start: int, end: int) -> bytes:
        found: bytes = self.fs.there[self.path][start:end]
        return found

    def discard(self) -> None:
        self.fs.uploads.discard(self.path)


@contextmanager
def object_store(name: str) -> Iterator[str]:
    """The address of an empty store of that kind."""
    fsspec.register_implementation("objects", Objects, clobber=True)
    url = f"objects://{name}"
    yield url
    for key in [key for key in Objects.there if key.startswith(f"{name}/")]:
        del Objects.there[key]
