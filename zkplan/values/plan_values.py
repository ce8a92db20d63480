"""Seal and open the values of plans, and put the large ones in the store.

Promise S10: a blob is durable before the transaction that refers to the blob is sent.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import (
    PayloadUndecodable,
    PlanNotFound,
    StoredValueLost,
    StoreUnavailable,
    ZkplanError,
)
from ..protocol.core import shared
from ..protocol.layout import number_of, shared_part
from ..protocol.records import PlanRecord
from ..protocol.requests import ReadData, Step
from ..transport import Transport
from .blobs import (
    ADDED,
    Bytes,
    Cache,
    Part,
    Read,
    Reference,
    decode,
    digest,
    encode,
    is_stored,
    side_by_side,
)
from .codec import VALUE, Codec, dump, dump_call, load, unsealed
from .function_codec import load_function, named, split_name
from .functions_by_name import AllowList
from .json_values import dump_call_json, dump_json
from .pickle_by_value import not_serialisable
from .shared import KnownShared, SharedReference, is_shared
from .store import Store

#: The first bytes of values with no name and no reference, as nearly all arguments are.
_AS_IT_IS = frozenset((b"P", b"C", b"D"))
#: How long to wait for the answer of a store that may be unavailable.
SIGN_S = 2.0
#: For how many plans the folder is remembered.
FOLDERS_MAX = 10_000
#: How to give a store to a client.
HOW_TO_GIVE = "(connect(store=...), --store or ZKPLAN_STORE)"
NO_STORE = (
    "its value lies in a store, and none is configured here: give the store of its author "
    f"{HOW_TO_GIVE}"
)


class Values:
    """The values of all plans of one client. It is thread-safe."""

    def __init__(
        self,
        transport: Transport,
        codec: Codec,
        store: Store | None = None,
        for_ever: bool = False,
    ) -> None:
        """`for_ever`: wait for ZooKeeper without a limit, as a worker does."""
        self.transport, self.codec, self.store = transport, codec, store
        self._for_ever = for_ever
        self._cache = Cache()
        self.known_shared = KnownShared()
        self._folders: dict[str, str] = {}

    def for_worker(self, allowed: AllowList | None = None) -> Values:
        """The same, but it waits for ZooKeeper without a limit. `allowed`: see Codec."""
        found = Values(self.transport, self.codec.for_worker(allowed), self.store, True)
        found._cache, found.known_shared = self._cache, self.known_shared
        return found

    def folder_of(self, plan_path: str) -> str:
        """The folder of a plan in the store; each copy has its own. Raises PlanNotFound."""
        folder = self._folders.get(plan_path)
        if folder is None:
            node = self._run(_read(plan_path))
            if node is None:
                raise PlanNotFound(plan_path, f"there is no plan {plan_path}")
            uid = PlanRecord.from_bytes(node.data).uid
            folder = folder_name(plan_path, uid, node.created_ms)
            if len(self._folders) >= FOLDERS_MAX:
                self._folders.clear()
            self._folders[plan_path] = folder
        return folder

    def known_folder_of(self, plan_path: str) -> str:
        """As `folder_of`; empty without a store or such a plan, or for a plan of a newer zkplan."""
        try:
            return self.folder_of(plan_path) if self.store is not None else ""
        except (PlanNotFound, PayloadUndecodable):
            return ""

    def why_away(self, plan_path: str) -> str:
        """Why this client cannot use the store now; empty if it can, or if there is none."""
        store, folder = self.store, self.known_folder_of(plan_path)
        if store is None:
            return ""
        found = [f"the store {store.url} gives no answer"]

        def look() -> None:
            try:
                store.look(folder)
                found.append("")
            except StoreUnavailable as error:
                found.append(str(error))

        # On a thread, because a file system whose server is gone may block for ever.
        looking = threading.Thread(target=look, name="zkplan-store-look", daemon=True)
        looking.start()
        looking.join(SIGN_S)
        return found[-1]

    # ---- seal

    def seal(
        self, plan_path: str, key: str, value: Any, name: str = "", as_json: bool = False
    ) -> bytes:
        """The envelope of a value. `name` is that of its task, if the value will be kept.

        Without a `key`, it writes nothing to the store: it returns b"" for a value for the store.
        Raises NotSerialisable for a value that cannot travel, and StoreUnavailable.
        """
        if self.store is None:
            return self.codec.seal_value(value, name, as_json)
        as_json = as_json or self.codec.is_json_only
        if value is None and not as_json:
            return self.codec.seal_value(value, name, as_json)
        try:
            body, buffers = (dump_json(value), []) if as_json else dumped(value)
            store = self._store_for(body, buffers)
            if store is not None:
                if not key:
                    return b""
                body = self._stored(store, plan_path, key, body, buffers)
            elif buffers:
                body = dump(value)
        except ZkplanError:
            raise
        except Exception as error:
            what = f"a value of type {type(value).__qualname__}"
            raise not_serialisable(what, value, error) from error
        return self.codec.seal(VALUE, named(body, name) if name else body)

    def dump_call_json(
        self,
        plan_path: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        position_of: Callable[[Any], int | None],
    ) -> bytes:
        """The arguments of a call as JSON. Raises NotJson, and StoreUnavailable."""
        body = dump_call_json(args, kwargs, position_of)
        store = self._store_for(body, [])
        return body if store is None else self._stored(store, plan_path, ADDED, body, [])

    def dump_call(
        self,
        plan_path: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        position_of: Callable[[Any], int | None],
    ) -> bytes:
        """The arguments of a call; each task in them becomes its position. Raises what dill raises,
        and StoreUnavailable."""
        if self.store is None:
            return dump_call(args, kwargs, position_of)
        body, buffers = dumped((tuple(args), dict(kwargs)), position_of)
        store = self._store_for(body, buffers)
        if store is not None:
            return self._stored(store, plan_path, ADDED, body, buffers)
        return dump_call(args, kwargs, position_of) if buffers else body

    def function(self, plan_path: str, body: bytes) -> bytes:
        """The bytes that stand for a dumped function in a definition: itself, or a reference."""
        store = self._store_for(body, [])
        if store is None:
            return body
        name, _ = split_name(body)
        return named(self._stored(store, plan_path, ADDED, body, []), name)

    def constant(
        self,
        plan_path: str,
        value: Any,
        refuse: Callable[[Any], None],
        as_json: bool,
    ) -> tuple[bytes, bytes]:
        """A constant that the store has gets a reference; any other one is returned encoded. The
        other part of the result is empty.

        `refuse` raises an error for an object that cannot be part of a constant. Raises NotJson,
        what dill raises, what `refuse` raises, and StoreUnavailable.
        """
        if as_json or self.codec.is_json_only:
            body, buffers = dump_json(value, refuse), list[pickle.PickleBuffer]()
        else:
            body, buffers = dumped(value, refuse)
        store = self._store_for(body, buffers)
        if store is not None:
            return self._stored(store, plan_path, ADDED, body, buffers), b""
        return b"", dump(value, refuse) if buffers else body

    def _store_for(self, body: bytes, buffers: Sequence[pickle.PickleBuffer]) -> Store | None:
        """The store, if there is one and the value is large enough for it."""
        store = self.store
        return store if store is not None and _size(body, buffers) > store.inline_limit else None

    def _stored(
        self,
        store: Store,
        plan_path: str,
        key: str,
        body: bytes,
        buffers: Sequence[pickle.PickleBuffer],
    ) -> bytes:
        return self._stored_blob(store, plan_path, key, _encoded(body, buffers))

    def _stored_blob(
        self, store: Store, plan_path: str, key: str, chunks: Sequence[Bytes]
    ) -> bytes:
        length = sum(map(len, chunks))
        reference = Reference(key, digest(chunks), length, store.identity())
        folder = self.folder_of(plan_path)
        if self._cache.get(f"{folder}/{reference.name}") is None:
            store.write(folder, reference.name, chunks)
            if reference.length <= self._cache.entry_bytes_max:
                self._cache.put(f"{folder}/{reference.name}", b"".join(chunks))
        return reference.to_bytes()

    # ---- open

    def load(self, plan_path: str, body: bytes, read: Read | None = None) -> Any:
        """The value of an opened envelope. `read` returns its blob, if the caller reads that.

        Raises PayloadUndecodable, StoredValueLost, StoreUnavailable, and what the user's own
        classes raise.
        """
        if body[:1] in _AS_IT_IS:
            return self.codec.load(body)
        body = self._whole(plan_path, split_name(body)[1])
        if not is_stored(body):
            return self.codec.load(body)
        blob = self.blob(plan_path, Reference.from_bytes(body)) if read is None else read()
        return loaded(self.codec.load, blob, ())

    def load_call(self, plan_path: str, body: bytes, values: Sequence[Any]) -> Any:
        """(args, kwargs) of a definition, with `values` in place of its tasks. Raises as `load`."""
        if not is_stored(body):
            return self.codec.load_call(body, values)
        blob = self.blob(plan_path, Reference.from_bytes(body))
        return loaded(self.codec.load_call, blob, values)

    def load_all(self, plan_path: str, bodies: Sequence[bytes]) -> list[Any]:
        """The values of the arguments of one task. Several stored ones are read at once."""
        if self.store is None or len(bodies) < 2:
            return [self.load(plan_path, body) for body in bodies]
        plain = [split_name(body)[1] for body in bodies]
        if sum(map(is_stored, plain)) < 2:
            return [self.load(plan_path, body) for body in plain]
        reads = side_by_side(self.reading(plan_path, body) for body in plain)
        return [self.load(plan_path, *each) for each in zip(plain, reads, strict=True)]

    def reading(self, plan_path: str, body: bytes) -> Read | None:
        """A function that reads the blob of an opened envelope, for `side_by_side`; None if it has
        none."""
        plain = split_name(body)[1]
        if not is_stored(plain):
            return None
        return lambda: self.blob(plan_path, Reference.from_bytes(plain))

    def reading_sealed(self, plan_path: str, sealed: bytes) -> Read | None:
        """Likewise for a sealed envelope; None also if it cannot be opened."""
        if self.store is None:
            return None
        try:
            kind, body = unsealed(sealed)
        except PayloadUndecodable:
            return None
        return self.reading(plan_path, body) if kind == VALUE else None

    def load_function(self, plan_path: str, body: bytes) -> Callable[..., Any]:
        """The function of a definition. Raises as `load`."""
        reference = split_name(body)[1]
        if self.codec.is_json_only:
            return self.codec.load_function(body)
        if not is_stored(reference):
            return self.codec.load_function(self._whole(plan_path, reference))
        blob = self.blob(plan_path, Reference.from_bytes(reference))
        return load_function(bytes(decode(blob)[0]))

    # ---- for the process of a task

    def carried(self, plan_path: str, body: bytes, read: Read | None = None) -> tuple[bool, Bytes]:
        """Whether an opened envelope, or a function, is a blob, and its bytes. `read`: see `load`.
        Raises as `blob`."""
        read = read or self.reading(plan_path, body)
        if read is not None:
            return True, read()
        plain = split_name(body)[1]
        return False, self._whole(plan_path, plain) if is_shared(plain) else body

    def seal_carried(
        self, plan_path: str, key: str, is_blob: bool, data: Bytes, name: str = ""
    ) -> bytes:
        """The envelope of a value that the process of a task has encoded. Raises as `seal`."""
        if is_blob:
            if self.store is None:
                raise PayloadUndecodable(NO_STORE)
            data = self._stored_blob(self.store, plan_path, key, [data])
        return self.codec.seal(VALUE, named(bytes(data), name) if name else bytes(data))

    def _whole(self, plan_path: str, body: bytes) -> bytes:
        """A value or a function, without its name. If it is a reference to what tasks share, that
        is read, and compared with its digest.

        Raises PayloadUndecodable, PayloadRefused and StoredValueLost.
        """
        if not is_shared(body):
            return body
        reference = SharedReference.from_bytes(body)
        place = f"{plan_path}/{reference.name}"
        found = self._cache.get(place)
        if found is None:
            found = self._run(shared.read(plan_path, reference.name, reference.length))
            if found is None or digest([found]).hex() != reference.digest:
                state = "gone from" if found is None else "damaged in"
                part = shared_part(plan_path, reference.name, 0)
                raise StoredValueLost(f"what its tasks share is {state} the plan: {part}")
            self._cache.put(place, found)
            self.known_shared.add(plan_path, reference)
        return bytes(found)

    def blob(self, plan_path: str, reference: Reference) -> Bytes:
        """The bytes in the store, checked against the digest of their reference.

        Raises PayloadUndecodable if there is no store, StoredValueLost, StoreUnavailable.
        """
        store = self.store
        if store is None:
            raise PayloadUndecodable(NO_STORE)
        folder = self.folder_of(plan_path)
        place = f"{folder}/{reference.name}"
        blob = self._cache.get(place)
        if blob is None:
            blob = store.read(folder, reference.name, reference.store)
            if len(blob) != reference.length or digest([blob]) != reference.digest:
                raise StoredValueLost(
                    f"{place} in the store {store.url} is damaged ({len(blob)} of "
                    f"{reference.length} bytes)"
                )
            self._cache.put(place, blob)
        return blob

    def _run(self, step: Step[Any]) -> Any:
        return self.transport.run(step, for_ever=self._for_ever)


def folder_name(plan_path: str, uid: str, created_ms: int) -> str:
    """
    >>> folder_name("/zkplan/plan-0000000004", "c0ffee", 255)
    'plan-0000000004-c0ffee-ff'
    """
    return f"plan-{number_of(plan_path)}-{uid}-{created_ms:x}"


def _read(path: str) -> Step[Any]:
    return (yield ReadData(path))


def dumped(
    value: Any, position_of: Callable[[Any], int | None] | None = None
) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """The pickle and its buffers, which are separate so that large ones are not copied."""
    buffers: list[pickle.PickleBuffer] = []
    body = dump(value, position_of, buffers)
    try:
        for buffer in buffers:
            buffer.raw()
    except BufferError:  # not contiguous: its object has to put it into the pickle
        return dump(value, position_of), []
    return body, buffers


def loaded(load: Callable[..., Any], blob: Bytes, values: Sequence[Any]) -> Any:
    body, *buffers = decode(blob)
    return load(memoryview(body), values, buffers)


def _size(body: bytes, buffers: Sequence[pickle.PickleBuffer]) -> int:
    return len(body) + sum(buffer.raw().nbytes for buffer in buffers)


def _encoded(body: bytes, buffers: Sequence[pickle.PickleBuffer]) -> list[Bytes]:
    views = [buffer.raw() for buffer in buffers]
    return encode([Part(body), *(Part(view, view.readonly) for view in views)])


# ---- Values on their way between a worker and the process of a task.
#
# The worker reads and writes blobs of the store, and decodes nothing. The process decodes, and has
# no login of the store.


def carried_value(is_blob: bool, data: Bytes, values: Sequence[Any] = ()) -> Any:
    """The value of what `Values.carried` returned. Raises as `codec.load`."""
    return loaded(load, data, values) if is_blob else load(bytes(data), values)


def carried_function(is_blob: bool, data: Bytes) -> Callable[..., Any]:
    """Likewise for a function. Raises PayloadUndecodable."""
    return load_function(bytes(decode(data)[0] if is_blob else data))


def carry(value: Any, inline_limit: int | None) -> tuple[bool, list[Bytes]]:
    """Whether the value is large enough for a store (None: there is none), and its bytes, for
    `Values.seal_carried`. Raises NotSerialisable."""
    try:
        if inline_limit is None:
            return False, [dump(value)]
        body, buffers = dumped(value)
        if _size(body, buffers) > inline_limit:
            return True, _encoded(body, buffers)
        return False, [dump(value) if buffers else body]
    except ZkplanError:
        raise
    except Exception as error:
        what = f"a value of type {type(value).__qualname__}"
        raise not_serialisable(what, value, error) from error
