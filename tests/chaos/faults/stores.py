"""Faults of the store: away, full, read-only, slow, failing; and blobs that are gone or damaged.

None of them may cost a task an attempt, or end a process. Crashes between the write of a blob and
its commit, and late writes, are in points.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import zkplan
from tests.tools.disk import Disk

from ..cluster.cluster import Cluster
from .fault import Fault, enter
from .points import NowAndThen
from .target import Target

#: Room left in a full store.
SPARE_BYTES = 16_384
_PATIENCE_S, _CONNECT_S = 2.0, 10.0
_ALL = 100
#: Of the value that is lost.
_ITEMS = 100
OF_STORE = Target(store=True)
LOCK = frozenset({"store"})


class TaskOfFault:
    """A plan of one task, which a fault adds for itself."""

    def __init__(
        self, cluster: Cluster, name: str, fn: Callable[..., Any], args: list[Any]
    ) -> None:
        self._name, self._expected = name, fn(*args)
        self._client = cluster.connect(connect_timeout=_CONNECT_S, patience=_PATIENCE_S)
        self.plan = self._client.create_plan(name, retry_delay=0)
        self.task = self.plan.add_task(fn, args, name="task", keep=True)

    def end(self, cluster: Cluster) -> None:
        """Judge its result and remove the plan. Raises ZooKeeperUnavailable without servers; then
        it is called again."""
        with suppress(zkplan.PlanNotFound):
            self.plan.mark_ready()
            self.plan.retry()
            # Another fault may leave no worker; then the plan stays, as its task may run late.
            with suppress(zkplan.WaitTimeout):
                found = self.task.result(_CONNECT_S)
                if found != self._expected:
                    cluster.violations.append(f"S10 {self._name}: restored, it gives {found!r}")
                self.plan.remove()
        self._client.close()


class StoreBroken(Fault):
    """The store cannot be used, or not be written; it takes effect when a worker tells of it.

    Authors cannot add plans meanwhile, and those that stand may end first. So the fault brings a
    task of its own, whose result is to be written.
    """

    waits_s = 15.0
    locks = LOCK
    #: What the errors say that workers tell.
    says: tuple[str, ...] = ()

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._read: dict[Path, int] = {}
        self._own: TaskOfFault | None = None
        self._is_broken = False

    def inject(self, cluster: Cluster, chance: random.Random) -> None:
        self._own = TaskOfFault(cluster, self.name, bytes, [_ITEMS])
        self._read = {log: log.stat().st_size for log in cluster.folder.glob("*.log")}
        self._is_broken = True
        self.set_broken(cluster, True)
        self._own.plan.mark_ready()

    def set_broken(self, cluster: Cluster, broken: bool) -> None:
        raise NotImplementedError

    def target(self) -> Target:
        return OF_STORE

    def took_effect(self, cluster: Cluster) -> bool:
        new = "".join(map(self._new_in, cluster.folder.glob("*.log")))
        return any(each in new for each in self.says)

    def _new_in(self, log: Path) -> str:
        with log.open(errors="replace") as file:
            file.seek(self._read.get(log, 0))
            return file.read()

    def heal(self, cluster: Cluster) -> None:
        """Raises ZooKeeperUnavailable without servers; then it is called again."""
        if self._is_broken:
            self.set_broken(cluster, False)
            self._is_broken = False
        if self._own is not None:
            self._own.end(cluster)


class StoreAway(StoreBroken):
    """Its folder is gone, and what stands in its place is none."""

    says = ("Not a directory", "unmounted perhaps")

    def set_broken(self, cluster: Cluster, broken: bool) -> None:
        assert cluster.store is not None
        (cluster.store.take_away if broken else cluster.store.bring_back)()


class StoreDisk(StoreBroken):
    """A fault of its file system. Needs root."""

    def unable(self, cluster: Cluster) -> str:
        return "" if cluster.store_disk else "no file system could be mounted (needs root)"

    def set_broken(self, cluster: Cluster, broken: bool) -> None:
        assert cluster.store_disk is not None
        self.set_full_or_read_only(cluster.store_disk, broken)

    def set_full_or_read_only(self, disk: Disk, broken: bool) -> None:
        raise NotImplementedError


class StoreFull(StoreDisk):
    says = ("No space left",)

    def set_full_or_read_only(self, disk: Disk, broken: bool) -> None:
        if broken:
            disk.fill(SPARE_BYTES)
        else:
            disk.free()


class StoreReadOnly(StoreDisk):
    says = ("Read-only file system",)

    def set_full_or_read_only(self, disk: Disk, broken: bool) -> None:
        disk.set_writable(not broken)


class StoreTrouble(NowAndThen):
    """Some reads and writes of all workers take long, or fail: the store costs no attempt."""

    def target(self) -> Target:
        return OF_STORE


class BlobLost(Fault):
    """A plan of its own, a blob of which is gone or damaged: its task fails and says the way out.

    Nothing of it is decoded. The healing restores the blob and tries the task again.
    """

    lasts = (0.0, 0.1)
    waits_s = 30.0
    locks = LOCK

    def __init__(self, name: str, damage: bool) -> None:
        super().__init__(name)
        self._damage = damage
        self._own: TaskOfFault | None = None
        self._blob, self._bytes = Path(), b""

    def inject(self, cluster: Cluster, chance: random.Random) -> None:
        store = cluster.store
        assert store is not None
        self._own = TaskOfFault(cluster, self.name, sum, [[*range(_ITEMS)]])
        plan = self._own.plan
        # That of its argument: workers may remember the function, by the same digest.
        blobs = [store.folder_of(plan) / name for name in store.blobs(plan)]
        self._blob = max(blobs, key=lambda blob: blob.stat().st_size)
        self._bytes = self._blob.read_bytes()
        if self._damage:
            at = chance.randrange(len(self._bytes))
            other = bytes([self._bytes[at] ^ 1 << chance.randrange(8)])
            self._blob.write_bytes(self._bytes[:at] + other + self._bytes[at + 1 :])
        else:
            self._blob.unlink()
        plan.mark_ready()

    def target(self) -> Target:
        return Target()

    def took_effect(self, cluster: Cluster) -> bool:
        if self._own is None:
            return False
        with suppress(zkplan.ZooKeeperUnavailable):
            # Asked first: the task may fail between the two, and a dead task is done as well.
            is_done = self._own.task.done()
            for _, letter in self._own.plan.dead():
                if "task needs a value that is gone" in letter.error:
                    return True
                cluster.violations.append(f"S10 {self.name}: its task failed with {letter.error}")
            if is_done:
                cluster.violations.append(f"S10 {self.name}: its task has finished all the same")
        return False

    def heal(self, cluster: Cluster) -> None:
        """Raises ZooKeeperUnavailable without servers; then it is called again."""
        if self._own is None:
            return
        if self._bytes:
            self._blob.write_bytes(self._bytes)
        self._own.end(cluster)


for _name, _does, _make in (
    ("store away", "the store is gone for everybody, and comes back", StoreAway),
    ("store full", "its file system has no room left", StoreFull),
    ("store read-only", "its file system is mounted read-only", StoreReadOnly),
):
    enter(_name, _does, _make, store=True, weight=4)
_name, _does = "store slow", "half of all reads and writes take half a second more"
enter(
    _name,
    _does,
    StoreTrouble,
    "store.read=sleep:0.5:0.5,store.write=sleep:0.5:0.5",
    _ALL,
    store=True,
)
_name, _does = "store writes lost", "half of all reads and writes fail, and change nothing"
enter(_name, _does, StoreTrouble, "store.read=fail:0.5,store.write=fail:0.5", _ALL, store=True)
_name, _does = "store answers lost", "half of all writes tell that they fail when they are done"
enter(_name, _does, StoreTrouble, "store.written=fail:0.5", _ALL, store=True)
_does = "a blob that a task needs is gone, and restored when the task has failed"
enter("blob gone", _does, BlobLost, False, store=True)
_does = "a bit of a blob that a task needs is wrong, and restored when the task has failed"
enter("blob damaged", _does, BlobLost, True, store=True)
