"""Archive plans in the store before they are removed, list the archives, and read one back.

An archive is the file of an export. It lies in the folder `archive` of the store, beside the
folders of plans. zkplan never deletes an archive.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from ..errors import (
    PayloadUndecodable,
    PlanNotFound,
    StoredValueLost,
    StoreUnavailable,
    ZkplanError,
)
from ..protocol.core.plan_life import status
from ..protocol.fields import as_moment, as_text
from ..values.connection import Connection
from ..values.store import CHUNK_BYTES, Store
from .plan_reader import PlanReader

#: The folder of archives in the store. A plan's folder begins with `plan-`.
FOLDER = "archive"
#: How many bytes of an archive to read for a listing, enough for its first line.
HEAD_BYTES = 64 * 1024
_NAME = re.compile(r"plan-[0-9]{10}-[\w-]{1,100}\.zkplan", re.ASCII)


class Archived(NamedTuple):
    """An archive in the store. `plan` is the name of the plan, and `path` its former path.
    `exported` is when the archive was written, in seconds since 1970 by the clock of the writer. If
    the file is damaged, `plan` and `path` are empty, and `exported` is None."""

    file: str
    plan: str
    path: str
    state: str
    exported: float | None


def archive_plan(client: Connection, plan_path: str) -> str:
    """Write the archive of a plan that has ended, read it back, and return its name.

    An archive is never overwritten, because its writer may have removed half of the plan since. So
    this looks again for an archive after its own export, which might have read such a half.

    Raises StoreUnavailable if there is no store or it cannot be used, StoredValueLost if the
    archive is damaged, PlanNotFound, and as `export_plan`.
    """
    from .export import export_plan, read_through

    store = _store(client)
    stem = client.values.known_folder_of(plan_path)
    if not stem:
        raise PlanNotFound(plan_path, f"there is no plan {plan_path}")
    # A failed plan may be retried and end again: each end has an archive of its own.
    retried = client.transport.run(status(plan_path)).retried
    name = f"{stem}-r{retried}.zkplan" if retried else f"{stem}.zkplan"
    if not _exists(store, name):
        with TemporaryDirectory(prefix="zkplan-archive-") as folder:
            file = Path(folder) / name
            export_plan(PlanReader(client, plan_path), file)
            if not _exists(store, name):
                store.write(FOLDER, name, _chunks(file))
    with read_back(client, name) as copy:
        try:
            read_through(copy, client, any_secret=False)
        except PayloadUndecodable as error:
            raise StoredValueLost(
                f"{FOLDER}/{name} in the store {store.url} is damaged: {error}. Move the file away"
            ) from None
    return name


def _exists(store: Store, name: str) -> bool:
    try:
        return bool(next(store.chunks(FOLDER, name, 1), b""))
    except StoredValueLost:
        return False


def archived_plans(client: Connection) -> list[Archived]:
    """The archives in the store, of all roots that share it, by name. Raises StoreUnavailable."""
    store = _store(client)
    found = [name for name in store.names(FOLDER) if _NAME.fullmatch(name)]
    return [described(name, _head(store, name)) for name in found]


@contextmanager
def read_back(client: Connection, name: str) -> Iterator[Path]:
    """A copy of the archive as a file for the duration of the block. Raises StoredValueLost if the
    archive does not exist, and StoreUnavailable."""
    store = _store(client)
    if not _NAME.fullmatch(name):
        raise ZkplanError(
            f"{name!r:.100} is not the name of an archive: `zkplan plan archived` lists them"
        )
    with TemporaryDirectory(prefix="zkplan-archive-") as folder:
        file = Path(folder) / name
        with file.open("wb") as target:
            for chunk in store.chunks(FOLDER, name):
                target.write(chunk)
        yield file


def _store(client: Connection) -> Store:
    if client.values.store is None:
        raise StoreUnavailable(
            "there is no store for archives: give one (connect(store=...), --store or "
            "ZKPLAN_STORE), also to the workers"
        )
    return client.values.store


def _chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as source:
        while chunk := source.read(CHUNK_BYTES):
            yield chunk


def _head(store: Store, name: str) -> bytes:
    try:
        return next(store.chunks(FOLDER, name, HEAD_BYTES), b"")
    except StoredValueLost:
        return b""  # the file was moved away just now


def described(name: str, head: bytes) -> Archived:
    """The facts in the first bytes of an archive. Only an import checks the whole file."""
    try:
        line = zlib.decompressobj(31).decompress(head, 4 * HEAD_BYTES).partition(b"\n")[0]
        facts = json.loads(line)
        plan, path, state = (as_text(facts.get(key)) for key in ("name", "origin", "state"))
        return Archived(name, plan, path, state, as_moment(facts.get("exported")))
    except (zlib.error, ValueError, AttributeError, RecursionError):
        return Archived(name, "", "", "(damaged)", None)
