"""The bytes of the present formats: `python -m tests.unit.golden` writes them into golden_files.

Each file is named by the formats that it shows. A file of another format stays as it is: the tests
refuse it in words. What is the same on every machine is made by the real steps, on the tree of the
simulation.
"""

from __future__ import annotations

import gzip
import operator
import random
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from tests.sim.network import Network
from tests.sim.sealing import Sealing
from zkplan.author.export_file import ArchiveWriter, Header
from zkplan.author.export_restore import Piece
from zkplan.author.export_snapshot import Znode
from zkplan.protocol import formats
from zkplan.protocol.core import claim as claiming
from zkplan.protocol.core import commit as committing
from zkplan.protocol.core import end_claims as ending
from zkplan.protocol.core import load
from zkplan.protocol.core import plan_life as control
from zkplan.protocol.core import plans_and_queues as look
from zkplan.protocol.core import workers as membership
from zkplan.protocol.core.add import NewTask
from zkplan.protocol.core.commit_part import Part
from zkplan.protocol.core.workers import WorkerRecord
from zkplan.protocol.features.author import Author, create_plan, ensure_root
from zkplan.protocol.features.bounds import Bounds
from zkplan.protocol.features.gates import Condition, ensure_gates
from zkplan.protocol.features.keys import LEASE_MS, create_keyed
from zkplan.protocol.features.retry import reopen
from zkplan.protocol.features.schedules import Definition, Upcoming
from zkplan.protocol.history.compaction import Cut, Oldest
from zkplan.protocol.history.segments import Record, Span, merged_to_bytes
from zkplan.protocol.layout import Paths
from zkplan.protocol.records import Dead, Failure, PlanRecord, TaskRecord
from zkplan.protocol.requests import Step
from zkplan.protocol.task_options import TaskOptions
from zkplan.protocol.transactions import NO_ALLOWANCE, Claim, Registration
from zkplan.values import blobs as blob
from zkplan.values import codec as codecs
from zkplan.values import function_codec as functions
from zkplan.values.blobs import Reference
from zkplan.values.codec import FAILURE, GATE, LOG, TASK, VALUE, Codec
from zkplan.values.functions_by_name import dump_kind
from zkplan.values.shared import SharedReference
from zkplan.values.store_maintenance import part_of

FILES = Path(__file__).with_name("golden_files")
ROOT = "/zkplan"
NOW_MS = 1_700_000_000_000
COMMAND = "python -m tests.unit.golden"
ERROR = Failure("ValueError", "no", "Traceback …", "w-1", 0, 1.5)


class _Position(int):
    """Stands for a task among the arguments."""


def _position_of(value: Any) -> int | None:
    return int(value) if type(value) is _Position else None


def _definition(codec: Codec, deps: int, options: TaskOptions, as_json: bool = False) -> bytes:
    if as_json:
        call, made = b'J[[1],{"b":2},[]]', b"Joperator:add"
    else:
        args = tuple(_Position(n) for n in range(deps)) or (1, 2)
        call = codecs.dump_call(args, {}, _position_of)
        made = functions.dump_function(operator.add)
    return codec.seal(TASK, TaskRecord(deps, options.to_json(), made, call).to_bytes())


def _shown(data: bytes) -> str:
    """The data as text. Not each zlib compresses to the same bytes."""
    before, found, packed = data.partition(formats.HISTORY + b"z")
    return repr(before + found + zlib.decompress(packed) if found else data)


class Story:
    """A plan with a task of each kind in the middle of its run, one that has failed, one that was
    retried after its end, and one with a key that is not marked ready."""

    def __init__(self, *, sealed: bool) -> None:
        self.network = Network(random.Random(0), ROOT)
        self.network.clock = lambda: NOW_MS
        if sealed:
            self.network.sealing = Sealing(7, ROOT, self.network.read_now)
        self.codec = Codec(has_keys=sealed)
        self.client = self.network.connect("author@here")
        self.paths = Paths(ROOT)
        self._write()
        self._work()

    def run(self, step: Step[Any]) -> Any:
        found: list[Any] = []

        def whole() -> Step[None]:
            found.append((yield from step))

        self.network.start(self.client, "golden", whole(), {})
        while self.client.queue:
            self.network.deliver(self.client)
        return found[0]

    def _task(self, deps: list[str | NewTask], **more: Any) -> NewTask:
        options = TaskOptions(attempts=3, retry_delay=1.0, timeout=60.0, keep=True)
        return NewTask("add", "5000", _definition(self.codec, len(deps), options), deps, **more)

    def _write(self) -> None:
        self.run(ensure_root(self.paths))
        record = PlanRecord("nightly", "uid-1", 1.5, TaskOptions(name="n"), retention=60.0)
        self.plan = self.run(create_plan(self.paths, record))
        path = self.paths.plan(self.plan)
        self.run(ensure_gates(ROOT))
        gate = self.codec.seal(GATE, Condition("/data/ready", "exists", timeout=9.0).to_bytes())
        first, again, claimed = (self._task([]) for _ in range(3))
        dead = self._task([])
        waits = self._task([first, claimed])
        tasks = [first, again, claimed, dead, self._task([first]), waits]
        tasks += [
            self._task([], gate=gate),
            self._task([], key="k", queue="gpu~db"),
            self._task([], not_before_ms=NOW_MS + 5000),
            self._task([dead], takes_failures=True),
        ]
        author = Author(path)
        author._uid = "0011223344556677"
        self.run(author.add(tasks))
        self.run(control.mark_ready(path))
        self.ended = self._cascading("ends", "uid-2", [self._task([])])
        fails = self._task([])
        self.retried = self._cascading("again", "uid-3", [fails, self._task([fails])])
        keyed = PlanRecord("keyed", "uid-4", 3.5, key="2026-11-28")
        self.run(create_keyed(self.paths, keyed, False, lease_ms=LEASE_MS))

    def _cascading(self, name: str, uid: str, tasks: list[NewTask]) -> str:
        record = PlanRecord(name, uid, 2.5, on_failure="cascade", weight=3)
        plan: str = self.run(create_plan(self.paths, record))
        author = Author(self.paths.plan(plan))
        author._uid = "8899aabbccddeeff"
        self.run(author.add(tasks))
        self.run(control.mark_ready(self.paths.plan(plan)))
        return plan

    def _claims(self, me: Registration, plan: str) -> dict[str, Claim]:
        seen = self.run(look.look(self.paths.plan(plan)))
        names = sorted(seen.names)
        made = self.run(claiming.claim(me, plan, seen.version, names)).claims
        return {each.task: each for each in made}

    def _work(self) -> None:
        record = WorkerRecord("w-1", "here", 7, 2, 3.5, version="0.1.0", isolation="thread")
        uids: Iterator[str] = map("{:x}".format, count())
        me = self.run(membership.register(self.paths, "w-1", record.to_bytes(), uids))
        claims = self._claims(me, self.plan)
        first, again, _, dead = (claims[each] for each in sorted(claims)[:4])
        failure = self.codec.seal(FAILURE, ERROR.to_bytes())
        self.run(ending.fail_again(again, failure, NOW_MS + 900, self.paths.delayed, 900))
        letter = Dead("5000", 0, 3, "add", "ValueError: no", "w-1")
        self.run(ending.fail_for_good(dead, failure, letter))
        (loaded,) = self.run(load.load([first]))
        part = Part(loaded, self.codec.seal_value(3, "add"), True)
        self.run(committing.commit(me, [part], [], NO_ALLOWANCE))
        self._fail(me, self.ended, letter, 1)
        self._fail(me, self.retried, letter, 2)
        self.run(reopen(self.paths.plan(self.retried), 5.5))

    def _fail(self, me: Registration, plan: str, letter: Dead, tasks: int) -> None:
        failure = self.codec.seal(FAILURE, ERROR.to_bytes())
        for _ in range(tasks):
            (claim,) = self._claims(me, plan).values()
            (loaded,) = self.run(load.load([claim]))
            fails = Part(loaded, failure, True, letter.to_bytes(), holds=True, cascades=True)
            self.run(committing.commit(me, [fails], [], NO_ALLOWANCE))
        self.run(control.finish(self.paths.plan(plan), 4.5))

    def lines(self) -> list[str]:
        nodes = self.network.tree.znodes.by_path
        inside = sorted(path for path in nodes if path.startswith(ROOT))
        return [
            f"{path} {nodes[path].version} {_shown(bytes(nodes[path].data))}" for path in inside
        ]

    def znodes(self) -> list[Znode]:
        """Those of the first plan, as an exported file has some of them."""
        start, nodes = self.paths.plan(self.plan), self.network.tree.znodes.by_path
        found = [path for path in sorted(nodes) if path.startswith(f"{start}/task-")]
        wanted = [path for path in found if path.count("/") == 3 or "/arg-" in path][:6]
        return [Znode("", bytes(nodes[start].data), 0)] + [
            Znode(path.removeprefix(f"{start}/"), bytes(nodes[path].data), 0) for path in wanted
        ]


def _payloads() -> list[str]:
    codec, values = Codec(), [None, 1, "text", {"a": [1.5, b"b"]}, (1, {2})]
    made = {repr(value): codec.seal_value(value) for value in values}
    made["named"] = codec.seal_value(1, "load")
    made["json"] = codec.seal_value({"a": [1, None]}, as_json=True)
    made["without digest"] = Codec(has_keys=True).seal_value(1)
    options = TaskOptions(attempts=2, keep=True, priority=1, queue="gpu", limits=("db",))
    made["task"] = _definition(codec, 2, options)
    made["json task"] = _definition(codec, 0, options, as_json=True)
    made["kind"] = dump_kind("resize")
    made["failure"] = codec.seal(FAILURE, ERROR.upstream("0000000007").to_bytes())
    made["log"] = codec.seal(LOG, codecs.dump("half"))
    made["shared"] = SharedReference("0f" * 16, "f0" * 16, 7).to_bytes()
    made["reference"] = codec.seal(
        VALUE, Reference("0000000005.1", bytes(16), 70_000, "00ff" * 4).to_bytes()
    )
    return [f"{name}: {data!r}" for name, data in made.items()]


def _records() -> list[str]:
    builder = _definition(Codec(), 0, TaskOptions())
    schedule = Definition(
        *("nightly", "u", "0 3 * * *", "UTC", "skip", "latest", 1.0),
        *(PlanRecord("nightly", "", 0.0), builder, "5000", "jobs:build"),
    )
    made: dict[str, bytes] = {
        "schedule": schedule.to_bytes(),
        "next": Upcoming(NOW_MS).to_bytes(),
        "bounds": Bounds(retention=60.0, archive=True, znodes=9, bytes=99).to_bytes(),
    }
    return [f"{name}: {data!r}" for name, data in made.items()]


def _part() -> list[str]:
    merged = merged_to_bytes([Record(3, NOW_MS, "w-1", [["D"]])])
    span = Span(3, 3, f"merged-0000000003-0000000003.{len(merged)}")
    reference, data = part_of(Oldest(span, merged, Cut(), 0, 1, 1.5))
    return [reference.key.rpartition("-")[0], _shown(data)]


def _archive() -> list[str]:
    story = Story(sealed=False)
    piece = b"".join(blob.encode([blob.Part(b"value")]))
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "plan")
        header = Header("nightly", "uid-1", "running", 10, 20, story.paths.plan(story.plan), 4.5)
        with ArchiveWriter(target, header) as writer:
            writer.add_piece(Piece(f"add-{blob.digest([piece]).hex()}", piece))
            for znode in story.znodes():
                writer.add(znode)
            writer.finish()
        return gzip.decompress(target.read_bytes()).decode().splitlines()


def made() -> dict[str, str]:
    """The text of each file, by its name."""
    tree = f"{formats.TREE}-{formats.ENVELOPE.decode()}-{formats.HISTORY.decode()}"
    sealed = formats.SEALED.decode()
    parts = [blob.Part(b"pickle"), blob.Part(b"buffer", read_only=False)]
    found = {
        f"tree-{tree}": [*Story(sealed=False).lines(), *_records()],
        f"sealed-{tree}-{sealed}": Story(sealed=True).lines(),
        f"payloads-{formats.ENVELOPE.decode()}": _payloads(),
        f"blob-{formats.BLOB.decode()}": [repr(b"".join(blob.encode(parts)))],
        f"part-{formats.HISTORY_PART.decode()}-{formats.HISTORY.decode()}": _part(),
        f"archive-{formats.ARCHIVE}-{formats.TREE}-{formats.ENVELOPE.decode()}": _archive(),
    }
    return {f"{name}.txt": "\n".join(lines) + "\n" for name, lines in found.items()}


def main() -> None:
    for name, text in made().items():
        before = ""
        with suppress(FileNotFoundError):
            before = (FILES / name).read_text()
        if text != before:
            (FILES / name).write_text(text)
            done = "changed: right only if no release has had it" if before else "made"
            sys.stdout.write(f"{name} {done}\n")


if __name__ == "__main__":
    main()
