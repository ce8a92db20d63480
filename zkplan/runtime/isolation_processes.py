"""Run tasks in processes: each running task has a slot, which later tasks reuse, and a share of the
memory."""

from __future__ import annotations

import codecs
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any

from ..basics.log import get_logger
from ..basics.text import size
from ..errors import PayloadUndecodable, ZkplanError
from ..protocol.records import Failure
from ..protocol.task_options import TaskOptions
from ..values.blobs import Bytes
from ..values.codec import Codec, dump
from .attempts import MESSAGES
from .isolation import Came, Garbled, Packet, Work, from_plain
from .isolation_slot import ProcessEnded, Reply, Slot
from .job import Ended, Job
from .output import KEPT_ALREADY, StderrLog

#: A child is replaced after this many tasks.
TASKS_PER_CHILD = 1000
#: The most processes of one task at a time.
PROCESSES_MAX = 500
logger = get_logger("zkplan.worker")
#: Not below "zkplan": `zkplan worker --quiet` silences zkplan's own messages only.
tasks_logger = get_logger("task")


class Processes:
    """Implements `zkplan.runtime.isolation.Isolation`. Thread-safe: many threads call `run`."""

    def __init__(
        self,
        codec: Codec,
        slots: int,
        is_default: bool,
        memory_limit: int | None = None,
        tasks_per_child: int = TASKS_PER_CHILD,
    ) -> None:
        """`is_default`: tasks without `isolation` get a process, too. `memory_limit`: the bytes for
        tasks without a limit of their own; None: a share of this machine's memory."""
        self._codec, self._slots, self._is_default = codec, slots, is_default
        self._given, self._tasks_per_child = memory_limit, tasks_per_child
        self._share = 0
        self._free: list[Slot] = []
        self._all: set[Slot] = set()
        self._closed = False
        self._lock = threading.Lock()

    @property
    def memory_limit(self) -> int:
        """The memory limit in bytes of tasks without a limit of their own."""
        if self._given is not None:
            return self._given
        self._share = self._share or fair_share(self._slots)
        return self._share

    @property
    def default(self) -> str:
        """See Isolation."""
        return "process" if self._is_default else "thread"

    def start(self) -> None:
        """If tasks get processes by default, start the guards now, and log the memory limit."""
        if not self._is_default:
            return
        origin = (
            ""
            if self._given is not None
            else (f", a share of the free memory for {self._slots} slots (memory_limit sets it)")
        )
        logger.info(
            "each task runs in a process of its own, with at most %s of memory%s",
            *(size(self.memory_limit), origin),
        )
        for _ in range(self._slots):
            self._give_back(self._new_slot())

    def takes(self, options: TaskOptions) -> bool:
        """See Isolation."""
        if options.isolation is None and options.memory_limit is None:  # as most tasks
            return self._is_default
        return options.is_isolated

    def run(
        self, work: Work, start: Callable[[], Ended | None], log: Callable[[bytes], None]
    ) -> Came:
        """See Isolation."""
        job = work.job
        if sys.platform != "linux":
            return Came(cannot_run=f"{job.name} needs a process of its own, and so Linux")
        try:
            slot = self._take()
        except (OSError, ZkplanError) as error:
            return Came(cannot_run=f"no process can be started for {job.name}: {error}")
        limit = job.options.memory_limit or self.memory_limit
        attempt = _Attempt(work, start, log, limit, self._codec)
        lines = _Output(job)
        try:
            attempt.run(slot, lines)
        except BaseException:
            self._drop(slot)
            raise
        lines.close()
        if slot.broken:
            self._drop(slot)
        else:
            if attempt.leaves or slot.count >= self._tasks_per_child:
                slot.renew()
            else:
                slot.rest()
            self._give_back(slot)
        return attempt.came

    def _take(self) -> Slot:
        with self._lock:
            if self._free:
                return self._free.pop()
        return self._new_slot()

    def _new_slot(self) -> Slot:
        slot = Slot()
        with self._lock:
            self._all.add(slot)
            closed = self._closed
        if closed:
            self._drop(slot)
            raise ZkplanError("the worker has ended")
        return slot

    def _give_back(self, slot: Slot) -> None:
        with self._lock:
            if not self._closed:
                self._free.append(slot)
                return
        # The task ended while `close` ended the slots in use, so only this thread can close `slot`.
        self._drop(slot)

    def _drop(self, slot: Slot) -> None:
        with self._lock:
            self._all.discard(slot)
        slot.close()

    def close(self) -> None:
        """See Isolation. Tasks that still run are no longer wanted."""
        with self._lock:
            self._closed = True
            free, self._free = self._free, []
            others = self._all - set(free)
            self._all = set(others)
        for slot in (*free, *others):
            slot.begin_close()
        for slot in free:
            slot.close()


class _Output(StderrLog):
    """The output of one attempt: logged by the worker, line by line, and kept with the task."""

    def __init__(self, job: Job) -> None:
        name, what = f"{job.claim.plan_path} {job.name}", "what it prints and logs"
        super().__init__(tasks_logger, name, what, KEPT_ALREADY)
        self._job = job
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def add(self, data: bytes) -> None:
        """See StderrLog."""
        super().add(data)
        self._job.add_output(self._decoder.decode(data))

    def close(self) -> None:
        """See StderrLog."""
        super().close()
        self._job.add_output(self._decoder.decode(b"", True))


class _Attempt:
    """One attempt in a process; `run` fills `came`."""

    def __init__(
        self,
        work: Work,
        start: Callable[[], Ended | None],
        log: Callable[[bytes], None],
        limit: int,
        codec: Codec,
    ) -> None:
        self._work, self._start, self._log = work, start, log
        self._limit, self._codec = limit, codec
        self.came = Came()
        #: The task has left processes behind, so its child is ended with them.
        self.leaves = False

    def run(self, slot: Slot, lines: StderrLog) -> None:
        job, limits = self._work.job, (self._limit, PROCESSES_MAX)
        try:
            try:
                slot.run(job, self._packet(), limits, self._answer, lines)
            except ProcessEnded:
                if slot.began or slot.broken:
                    raise
                # The process ended just before the task began, which is not the task's fault.
                slot.run(job, self._packet(), limits, self._answer, lines)
        except ProcessEnded as ended:
            if slot.broken and not slot.began:
                self.came = Came(cannot_run=f"the process for {job.name} does not start")
            else:
                self.came = Came(lost=_lost(job, ended.how))
        except Garbled as error:
            self.came = Came(lost=_failure(job, "ProcessLost", f"it sent a bad packet: {error}"))
            self.leaves = True

    def _packet(self) -> tuple[dict[str, Any], list[Bytes]]:
        work, job = self._work, self._work.job
        plan = b"" if job.plan is None else job.plan.to_bytes()
        head = {
            "claim": astuple(job.claim),
            "options": job.options.to_json().decode(),
            "has_plan": job.plan is not None,
            "values": len(work.bodies),
            "blobs": [is_blob for is_blob, _ in work.bodies],
            "limit": self._limit,
            "inline_limit": work.inline_limit,
            "may_store": job.leader is None,
            "is_taken": job.is_taken,
            "messages": MESSAGES.isEnabledFor(20),
            "traceparent": job.traceparent,
            "span": [] if job.span is None else job.span.in_process,
        }
        return head, [plan, *(body for _, body in work.bodies), *work.logs]

    def _answer(self, packet: Packet) -> Reply:
        head, parts, job = packet.head, packet.parts, self._work.job
        self.leaves = head.get("leaves") is True
        match packet.kind:
            case "at":
                if not job.preparing and job.options.timeout is not None:
                    # Only now, because the start of its process does not count.
                    job.deadline = time.monotonic() + job.options.timeout
                job.preparing = str(head.get("what"))[:100]
                return Reply()
            case "prepared":
                self.came.refused = self._start()
                if self.came.refused is None:
                    return Reply("go")
                return Reply("skip", is_last=True)
            case "log":
                return self._store_log(parts)
            case "cannot":
                self.came.cannot_run = str(head.get("why"))
                self.came.shown = str(head.get("shown"))
            case "coroutine":
                self.came.is_coroutine = True
            case "needs_claim":
                self.came.needs_claim = True
            case "failed" if len(parts) == 1:
                self._note_failure(packet)
            case "result":
                self._note_result(packet)
            case _:
                raise Garbled(f"it sent {packet.kind!r:.50}")
        return Reply(is_last=True)

    def _store_log(self, parts: list[Bytes]) -> Reply:
        if len(parts) != 1:
            raise Garbled("a log entry has one value")
        try:
            self._log(bytes(parts[0]))
        except ZkplanError as error:
            return Reply("error", [dump(error)])
        return Reply("noted")

    def _note_failure(self, packet: Packet) -> None:
        body = bytes(packet.parts[0])
        try:
            Failure.from_bytes(body)
        except PayloadUndecodable as error:
            raise Garbled(str(error)) from None
        self.came.failure = body
        self.came.was_cancelled = packet.head.get("cancelled") is True
        self.came.is_final = packet.head.get("final") is True
        self.came.server_full = packet.head.get("full") is True

    def _note_result(self, packet: Packet) -> None:
        chunks = packet.head.get("chunks")
        if type(chunks) is not int or not 0 < chunks <= len(packet.parts):
            raise Garbled("its result has a wrong form")
        values = packet.parts[:chunks]
        adds = from_plain(packet.head.get("adds"), packet.parts[chunks:], self._codec)
        self.came.adds = tuple(adds)
        self.came.is_blob = packet.head.get("is_blob") is True
        self.came.result = values[0] if chunks == 1 else b"".join(values)


def _lost(job: Job, how: dict[str, Any]) -> Failure:
    """The failure of an attempt whose process has ended."""
    why, number, code = how.get("why"), how.get("number", 0), how.get("code")
    if why == "memory":
        limit = size(how.get("limit", 0))
        text = f"it used more than {limit} of memory, its limit (memory_limit), namely "
        text += size(number)
        return _failure(job, "MemoryError", text)
    if why == "processes":
        text = f"it had {number} processes, more than a task may have: all of them were ended"
    elif code is None:
        text = "the guard of its process has ended, or did not start"
    elif code < 0:
        name = _signal_name(-code)
        text = f"the process of the task was killed by {name}"
        if -code == signal.SIGKILL:
            text += " (by the system because memory ran out, or by hand)"
    else:
        text = f"the process of the task ended with exit code {code} before its function returned"
    return _failure(job, "ProcessLost", text)


def _failure(job: Job, kind: str, text: str) -> Failure:
    return Failure(
        *(kind, text, "", job.worker, job.claim.n, time.time()), traceparent=job.traceparent
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# ---- The default memory limit of a task: a share of this machine's memory.


#: The slots share this part of the memory that is free at the start.
SHARE = 0.8
_UNLIMITED = 2**60


def fair_share(slots: int) -> int:
    """The bytes of memory for each task, if `slots` tasks run at a time."""
    return max(64 * 1024 * 1024, int(SHARE * memory_available() / slots))


def memory_available(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """The bytes of memory that are free here, within the limits of this process's control group.

    A group's limit counts as a whole, because this worker itself uses most of the group's memory.
    """
    found = [_UNLIMITED]
    for line in _text(proc / "meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            found.append(int(rest.split()[0]) * 1024)
    for line in _text(proc / "self/cgroup").splitlines():
        number, kinds, path = line.split(":", 2)
        if number == "0":  # version 2
            top, name = groups, "memory.max"
        elif "memory" in kinds.split(","):
            top, name = groups / "memory", "memory.limit_in_bytes"
        else:
            continue
        folder = Path(path.lstrip("/"))
        # In a container, the path may be the one outside; then the limit is at the top.
        for each in (folder, *folder.parents):
            limit = _text(top / each / name).strip()
            if limit.isdecimal():
                found.append(int(limit))
    return min(found)


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
