"""Packets that a worker accepts from the process of a task, and the options of such processes."""

from __future__ import annotations

import functools
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

import zkplan
from zkplan.author.definition import Checker
from zkplan.author.task_specs import TaskSpec
from zkplan.errors import InvalidTask, ZkplanError
from zkplan.protocol.core.add import NewTask
from zkplan.protocol.task_options import DEFAULT_OPTIONS, TaskOptions
from zkplan.runtime import isolation as wire
from zkplan.runtime import isolation_processes as processes_module
from zkplan.runtime.isolation import Work, from_plain, to_plain
from zkplan.runtime.isolation_processes import Processes, fair_share, memory_available
from zkplan.runtime.isolation_slot import Slot
from zkplan.runtime.job import Ended
from zkplan.values.blobs import Bytes
from zkplan.values.codec import TASK, Codec
from zkplan.worker import check_isolation

from .attempts import CODEC, job_of


@pytest.fixture
def ends() -> Any:
    ours, theirs = wire.pair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("size", [0, 100, 5_000_000])
def test_packets_arrive_as_they_were_sent(ends: Any, size: int) -> None:
    ours, theirs = ends
    parts = [os.urandom(size), b"", os.urandom(7)]
    wire.send(theirs, "result", {"n": 1}, parts)
    found = wire.receive(ours)
    assert (found.kind, found.head, [bytes(part) for part in found.parts]) == (
        *("result", {"n": 1}, parts),
    )


@pytest.mark.parametrize(
    "sent",
    [
        b"\x80pickle",
        b"[]\n",
        b'{"kind":"a","sizes":[5],"head":{}}\nfour',
        b'{"kind":"a","sizes":[-1,1],"head":{}}\n',
        b'{"kind":"a","sizes":[],"head":[]}\n',
        b'{"kind":"a","sizes":[Infinity],"head":{}}\n',
        b'{"kind":"a","sizes":[9],"head":{},"in_file":true}\n',
        b"[" * 100_000,
    ],
)
def test_an_invalid_packet_is_refused_without_decoding(ends: Any, sent: bytes) -> None:
    ours, theirs = ends
    theirs.send(sent)
    with pytest.raises(wire.Garbled):
        wire.receive(ours)


def test_a_truncated_or_too_large_file_is_refused(ends: Any) -> None:
    ours, theirs = ends
    line = b'{"kind":"a","sizes":[100000],"head":{},"in_file":true}\n'
    read, write = os.pipe()
    file = os.memfd_create("cut")
    for handed in (read, file):
        socket.send_fds(theirs, [line], [handed])
        with pytest.raises(wire.Garbled, match="file"):
            wire.receive(ours)
    for each in (read, write, file):
        os.close(each)
    wire.send(theirs, "result", {}, [bytes(100_000)])
    with pytest.raises(wire.Garbled, match="100000 bytes, more than 5000"):
        wire.receive(ours, 5000)


def test_tasks_that_a_child_adds_are_signed_by_its_worker() -> None:
    unsigned = Codec()
    first = NewTask("one", "5000", unsigned.seal(TASK, b"first"), ["0000000007"], keep=True)
    second = NewTask("two", "4990", unsigned.seal(TASK, b"second"), [first, "0000000008"])
    second.queue, second.not_before_ms, second.takes_failures = "gpu~db", 7, True
    plain, bodies = to_plain([first, second])
    one, two = from_plain(plain, bodies, CODEC)
    assert [CODEC.open(TASK, task.record)[1] for task in (one, two)] == [b"first", b"second"]
    assert (one.deps, two.deps, one.keep) == (["0000000007"], [one, "0000000008"], True)
    assert (one.queue, two.queue, two.not_before_ms) == ("default", "gpu~db", 7)
    assert (one.takes_failures, two.takes_failures) == (False, True)


@pytest.mark.parametrize(
    "plain",
    [
        None,
        [["name"]],
        [["name", "5000", None, False, "gpu", 0, False, [0]]],
        [["name", "5000", None, False, "gpu", 0, False, ["../7"]]],
        [["name", "50/0", None, False, "gpu", 0, False, []]],
        [["name", 5000, None, False, "gpu", 0, False, []]],
        [["name", "5000", "yes", False, "gpu", 0, False, []]],
        [["name", "5000", None, False, "../gpu", 0, False, []]],
        [["name", "5000", None, False, "gpu", "0", False, []]],
        [["name", "5000", None, False, "gpu", 0, "no", []]],
        [
            ["name", "5000", None, False, "gpu", 0, False, []],
            ["more", "5000", None, False, "gpu", 0, False, []],
        ],
    ],
)
def test_added_tasks_of_the_wrong_form_are_refused(plain: Any) -> None:
    with pytest.raises(wire.Garbled):
        from_plain(plain, [b"body"], CODEC)


def test_available_memory_respects_control_groups(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    (proc / "self").mkdir(parents=True)
    (groups / "memory").mkdir(parents=True)
    (groups / "pods" / "one").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 8000 kB\n")
    assert memory_available(proc, groups) == 8_192_000
    (proc / "self" / "cgroup").write_text("0::/pods/one\n")
    (groups / "pods" / "one" / "memory.max").write_text("max\n")
    assert memory_available(proc, groups) == 8_192_000
    (groups / "pods" / "memory.max").write_text("5000000\n")
    assert memory_available(proc, groups) == 5_000_000
    # Of version 1, within a container: the path is that outside.
    (proc / "self" / "cgroup").write_text("4:memory:/docker/0a\n0::/\n")
    (groups / "memory" / "memory.limit_in_bytes").write_text("3000000\n")
    assert memory_available(proc, groups) == 3_000_000
    assert 64 * 1024 * 1024 <= fair_share(4) <= memory_available() // 4


async def coroutine() -> None:
    """As a task."""


def options_of(fn: Any, defaults: TaskOptions = DEFAULT_OPTIONS, **options: Any) -> TaskOptions:
    return Checker(defaults).check(TaskSpec(fn, **options))


def test_a_memory_limit_is_a_size_and_implies_a_process() -> None:
    limited = options_of(int, memory_limit="2GB")
    assert (limited.memory_limit, limited.is_isolated) == (2_000_000_000, True)
    decorated = zkplan.task(isolation="process", memory_limit="1GiB")(print)
    assert options_of(decorated).memory_limit == 1024**3
    in_process = TaskOptions(isolation="process")
    assert not options_of(int, in_process, isolation="thread").is_isolated
    assert TaskOptions.from_json(limited.to_json()) == limited


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"isolation": "container"}, 'must be "thread" or "process"'),
        ({"memory_limit": "much"}, 'a size such as "500MB"'),
        ({"memory_limit": 1000}, "must be 67.1 MB to"),
        ({"memory_limit": "1GB", "isolation": "thread"}, "only a task in a process of its own"),
    ],
)
def test_invalid_options_of_processes_are_refused(options: Any, why: str) -> None:
    with pytest.raises(InvalidTask, match=why):
        options_of(int, **options)


@pytest.mark.parametrize("fn", [coroutine, functools.partial(coroutine), zkplan.task(coroutine)])
def test_a_coroutine_that_asks_for_a_process_is_refused(fn: Any) -> None:
    with pytest.raises(InvalidTask, match="coroutines run in the loop"):
        options_of(fn, isolation="process")
    # The default of a plan is for its other tasks.
    assert options_of(fn, TaskOptions(isolation="process")).isolation == "thread"


def test_a_worker_refuses_wrong_options_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    for given in (("fork",), ("process", 0)):
        with pytest.raises(ZkplanError, match=r"must be"):
            check_isolation(*given)
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(ZkplanError, match="needs Linux"):
        check_isolation("process")


def children() -> set[str]:
    """The processes that this one has started, and has not reaped."""
    files = Path("/proc/self/task").glob("*/children")
    return {pid for file in files for pid in file.read_text().split()}


@pytest.mark.skipif(sys.platform != "linux", reason="processes of tasks need Linux")
def test_a_slot_is_closed_if_its_task_ends_while_the_worker_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Slot] = []

    def new_slot() -> Slot:
        made.append(Slot())
        return made[-1]

    monkeypatch.setattr(processes_module, "Slot", new_slot)
    before, processes, job = children(), Processes(CODEC, 1, True), job_of(abs, (-1,))
    record = CODEC.open_definition(job.loaded.record)

    def ends_meanwhile() -> Ended:
        processes.close()
        return Ended(job, stopped=True)

    bodies: list[tuple[bool, Bytes]] = [(False, record.function), (False, record.arguments)]
    came = processes.run(Work(job, bodies, [], None), ends_meanwhile, lambda body: None)
    assert came.refused is not None
    assert len(made) == 1
    assert children() == before
