"""Connect to the plans under one root (transport, paths, codec, keys, store), and batch the
reads of many steps."""

from __future__ import annotations

import getpass
import os
import shlex
import socket
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import cached_property
from queue import SimpleQueue
from typing import Any, TypeVar

from ..basics.settings import Settings, resolve
from ..errors import UNREACHABLE, InvalidSettings, ZkplanError
from ..protocol.core.load import read_small
from ..protocol.features.keys import create_keyed
from ..protocol.history.segments import Recorder
from ..protocol.layout import Paths, author_mark
from ..protocol.records import PlanRecord, Serializer
from ..protocol.requests import Delete, Multi, ReadChildren, ReadData, ReadMany, Request, Step
from ..transport import Transport
from .codec import Codec
from .guard import Guard
from .keyring import Key
from .plan_values import Values
from .store import Store
from .store_maintenance import Sweeper

DEFAULT_ROOT = Settings.root


class Connection:
    """The connection of one client, which its plans, tasks and views share."""

    def __init__(
        self,
        transport: Transport,
        root: str,
        keys: Sequence[Key] = (),
        hosts: str = "",
        store: Store | None = None,
        serializer: Serializer = "pickle",
    ) -> None:
        """The first of the `keys` seals all content of plans, and any of them opens it.

        `hosts` is the address for other programs, or empty if it is that of `transport`.
        """
        self.transport = transport
        self._hosts = hosts
        self.paths = Paths(_checked_root(root))
        self.keys = keys
        self.guard = Guard(keys, self.paths.root) if keys else None
        transport.guard = None if self.guard is None else self.guard.step
        #: Writes the history of plans.
        self.recorder = Recorder(self.paths.root, person(), acting=acting.get)
        transport.recorder = self.recorder.step
        self.codec = Codec(serializer, has_keys=bool(keys))
        #: The values of plans; large ones are in the store, if one is given.
        self.values = Values(transport, self.codec, store)
        #: Deletes the blobs that done plans leave in the store, and moves histories there.
        self.sweeper = Sweeper(transport, self.values, self.recorder.again)
        self.authors = LivingAuthors(transport)
        #: The keys for exported plans. An embedded server's own secret is never used for them.
        self.file_keys = keys
        #: The profile in printed commands, and the settings that it sets.
        self.profile = ""
        self.by_profile: frozenset[str] = frozenset()
        #: Whether plans end with this process, which has the server in memory or the workers.
        self.ends_with_process = False
        #: Warnings about the budget that this client has logged.
        self._warned: set[str] = set()

    @property
    def root(self) -> str:
        return self.paths.root

    def command(self, words: str) -> str:
        """The `zkplan` command with these `words` and the options that reach this client's plans.

        Every tree numbers its plans from the same number, so without these options a printed
        command could reach another plan. Options that a bare command would use are left out.
        """
        hosts = self._hosts or f"{self.transport.hosts}{self.transport.client.chroot}"
        options = {"hosts": hosts, "root": self.root}
        shown = [f"--profile {shlex.quote(self.profile)}"] if self.profile else []
        shown += [
            f"--{name} {shlex.quote(value)}"
            for name, value in options.items()
            if name not in self.by_profile and value != self._left_out.get(name)
        ]
        return " ".join(["zkplan", words, *shown])

    @cached_property
    def _left_out(self) -> dict[str, str]:
        """The defaults of zkplan that no variable and no profile of this user changes."""
        try:
            bare = resolve(profile=self.profile or None, warn=lambda _: None)
        except InvalidSettings:
            return {}
        if bare.profile != self.profile:
            return {}
        defaults = {"hosts": Settings.hosts, "root": Settings.root}
        return {name: text for name, text in defaults.items() if getattr(bare, name) == text}


def _checked_root(root: str) -> str:
    parts = root.strip("/").split("/")
    plain = all(part not in ("", ".", "..", "zookeeper") and part.isprintable() for part in parts)
    if not root.startswith("/") or not plain:
        raise ZkplanError(f"the root must be a path like /zkplan, not {root!r}")
    return "/" + "/".join(parts)


# ---- Run many read-only steps side by side: each round of their requests is one batch of reads.


T = TypeVar("T")


def together(steps: Sequence[Step[T]]) -> Step[list[T | ZkplanError]]:
    """The result of each of these steps, or the error that it raises.

    The steps may only read small znodes. A znode that an access list hides is missing for them, so
    that one hidden plan does not hide all others.
    """
    results: list[Any] = [None] * len(steps)
    asked: dict[int, Request] = {}
    for index, step in enumerate(steps):
        _go_on(step, None, index, asked, results)
    while asked:
        round_of = dict(asked)
        asked.clear()
        reads = [read for request in round_of.values() for read in _reads(request)]
        answers = yield from read_small(reads, strict=False)
        at = 0
        for index, request in round_of.items():
            many = len(_reads(request))
            found = answers[at : at + many]
            at += many
            answer = found if type(request) is ReadMany else found[0]
            _go_on(steps[index], answer, index, asked, results)
    return results


def _go_on(
    step: Step[Any], answer: Any, index: int, asked: dict[int, Request], results: list[Any]
) -> None:
    try:
        asked[index] = step.send(answer)
    except StopIteration as ended:
        results[index] = ended.value
    except UNREACHABLE:
        raise
    except ZkplanError as error:
        results[index] = error


def _reads(request: Request) -> Sequence[ReadData | ReadChildren]:
    if isinstance(request, ReadMany):
        return request.reads
    if isinstance(request, ReadData | ReadChildren):
        return (request,)
    raise TypeError(f"a read-only step has sent a {type(request).__name__}")


# ---- Name who acts, for the events of a history, where it is not a worker.


#: The maximum of characters of this name, which each event holds.
CHARS_MAX = 80
#: For whom this thread or coroutine acts; empty for the process itself. The service sets it.
acting: ContextVar[str] = ContextVar("zkplan_acting", default="")


def person() -> str:
    """The user of this process and its machine, as `ann@build7`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may have no names
        user = str(os.getuid())
    return f"{user}@{socket.gethostname().split('.')[0]}"[:CHARS_MAX]


# ---- The author of a plan with a key counts as living while its handle exists.


class LivingAuthors:
    """Holds the marks of the plans that one client defines, and deletes each with its handle.

    The garbage collector may drop a handle at any point of any thread, which may hold any lock. So
    the finalizer only notes the mark, and a thread, which runs while there are marks, deletes it.
    At the end of the session, ZooKeeper deletes the rest.
    """

    #: For how long an author without a session, such as one of a service, counts as living after
    #: each add. 0 if the author is this process.
    lease_ms = 0

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._handles: dict[str, weakref.finalize[[], Any]] = {}
        self._dropped: deque[str] = deque()
        self._woken: SimpleQueue[None] = SimpleQueue()
        self._is_running = False

    def create(
        self, paths: Paths, record: PlanRecord, replaces: bool, tell: Callable[[str], None]
    ) -> tuple[str, bool]:
        """Run `create_keyed`, and raise as it does."""
        self.release()
        marks: list[str] = []
        step = create_keyed(
            *(paths, record, replaces, tell), lease_ms=self.lease_ms, marks=marks.append
        )
        try:
            return self._transport.run(step)
        except BaseException:
            # The plan may have been made nevertheless, and then no handle holds its mark.
            if marks:
                self._delete(marks[-1])
            raise

    def hold(self, handle: object, plan_path: str, uid: str) -> None:
        """Keep the mark of that plan until the handle is dropped, or `let_go`."""
        if self.lease_ms:
            return
        mark, dropped, woken = author_mark(plan_path, uid), self._dropped, self._woken

        def drop() -> None:
            dropped.append(mark)
            woken.put(None)

        with self._lock:
            self._handles[mark] = held = weakref.finalize(handle, drop)
            held.atexit = False
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="zkplan-authors", daemon=True).start()

    def let_go(self, plan_path: str, uid: str) -> None:
        """Forget the mark of a plan that is defined, and so has no mark any more."""
        with self._lock:
            held = self._handles.pop(author_mark(plan_path, uid), None)
        if held is not None and held.detach():
            self._woken.put(None)

    def _delete(self, mark: str) -> None:
        """Delete a mark, without waiting."""
        with suppress(ZkplanError):  # the client is closed, and its session with it
            self._transport.submit(Multi([Delete(mark)]), lambda answer, error: None)

    def release(self) -> None:
        """Delete the marks of dropped handles. Later requests of this client do not find them."""
        with self._lock:
            while self._dropped:
                mark = self._dropped.popleft()
                self._handles.pop(mark, None)
                self._delete(mark)

    def close(self) -> None:
        """Delete all marks, because the session may belong to another client and go on."""
        if os.getpid() != self._pid:
            return  # a thread of the parent may have held the lock at the fork
        with self._lock:
            for mark, held in self._handles.items():
                held.detach()
                self._delete(mark)
            self._handles.clear()
        self._woken.put(None)

    def _run(self) -> None:
        while True:
            self._woken.get()
            self.release()
            with self._lock:
                if not self._handles:
                    self._is_running = False
                    return
