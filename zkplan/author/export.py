"""Export a plan to a file, and import it on another server.

A plan can be exported while none of its tasks is claimed: it must be paused, not marked ready,
cancelled or done. The file shows the plan as it was at one moment (`author.export_snapshot`). The
last transaction of an import gives the plan its name. If the import crashes before that, no worker
runs the incomplete plan (`author.export_restore`).
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ..basics.log import get_logger
from ..basics.public_calls import Duration, in_seconds
from ..errors import (
    PayloadUndecodable,
    PlanDrained,
    PlanError,
    PlanNotFound,
    WaitTimeout,
    ZkplanError,
)
from ..protocol.core import plan_life
from ..protocol.core.edges import outcome_in
from ..protocol.core.end_claims import clear_claims, orphaned_claims
from ..protocol.features import remove_plan as removal
from ..protocol.layout import Paths, number_of
from ..protocol.records import PlanRecord, without_sources
from ..protocol.requests import ReadData, Step
from ..values.codec import FAILURE, GATE, LOG, TASK, VALUE, Codec
from ..values.connection import Connection
from ..values.store_maintenance import remove as remove_plan
from .export_file import ArchiveWriter, FileSeals, Header, open_archive
from .export_restore import Complete, Packer, Piece, Unpacker, begin, fill, find_twin
from .export_snapshot import Survey, Znode, read_plan, retire, survey
from .plan_reader import PlanReader

logger = get_logger("zkplan.archive")

#: How often the export reads a plan that keeps changing before it gives up.
READINGS_MAX = 5
#: Seconds between two checks of the claims that an export waits for.
LOOK_S = 0.1
#: The kinds of envelope that the children of a plan and of a task hold.
_SEALED = {"arg": VALUE + FAILURE, "log": FAILURE + LOG, "result": VALUE + FAILURE, "gate": GATE}


class Exported(NamedTuple):
    """The facts of an export. `tasks` counts unfinished tasks; `sha256` also ends the file."""

    file: Path
    state: str
    tasks: int
    znodes: int
    sha256: str


def export_plan(
    plan: PlanReader,
    file: str | Path,
    *,
    pause: bool = False,
    wait: Duration = 0.0,
    remove: bool = False,
) -> Exported:
    """Write a whole plan to a new file, from which `import_plan` makes the same plan elsewhere.

    The plan must be paused, not marked ready, cancelled or done. With `pause` it is paused first.
    Its running tasks have `wait` seconds to end. Afterwards the plan stays paused, because two
    copies would run its tasks twice: remove it once the file is imported. With `remove`, the export
    removes it: the export first reads the file again, and refuses if the plan has changed since.

    Raises PlanError if the plan is running or keeps changing, WaitTimeout if tasks are still
    claimed, PlanNotFound, OtherFormat, and ZkplanError if the file exists or cannot be written. An
    error leaves no file.
    """
    if not isinstance(plan, PlanReader):
        raise ZkplanError(
            f"export_plan takes a handle on a plan, and then a file, not {plan!r:.100}: "
            "client.export_plan(client.plan(4), file)"
        )
    target, record = Path(file), plan.record
    client: Connection = plan.client
    if target.exists():
        raise ZkplanError(
            f"{target} exists, and an export never overwrites a file: choose another name"
        )
    status = plan.status() if pause else None
    if status is not None and status.state in ("running", "failed") and status.ended is None:
        try:
            client.transport.run(plan_life.change_state(plan.path, "paused"))
        except PlanDrained:
            pass  # the last task has finished meanwhile
    try:
        for _ in range(READINGS_MAX):
            found = _wait_for_claims(plan, in_seconds(wait))
            written = _write(plan, record, found, target)
            if written is not None:
                break
        else:
            raise PlanError(
                plan.path,
                f"{plan.path} changed during each of {READINGS_MAX} readings: end the programs "
                "that add tasks to it, then export it again",
            )
    except ZkplanError:
        raise  # WaitTimeout is also an OSError
    except OSError as error:
        raise ZkplanError(f"{target} cannot be written: {error.strerror or error}") from error
    if remove:
        read_through(target, client, any_secret=False)
        client.transport.run(retire(plan.path, found.stand))
        remove_plan(client.transport, client.values, client.paths.plan(plan.number))
    return written


def _wait_for_claims(plan: PlanReader, wait: float) -> Survey:
    """Wait until no task of the plan is claimed. Releases the claims of vanished workers."""
    client: Connection = plan.client
    deadline = time.monotonic() + wait
    while True:
        found = client.transport.run(survey(client.paths, plan.number))
        if found.stand.state == "running":
            pause = client.command(f"plan pause {int(plan.number)}")
            raise PlanError(
                plan.path,
                f"{plan.path} is running: pause it (`{pause}`, or --pause) and let its running "
                "tasks end, then export it",
            )
        if not found.claimed:
            return found
        client.transport.run(_release_vacant(client.paths, set(found.claimed.values())))
        if time.monotonic() >= deadline:
            task, worker = next(iter(found.claimed.items()))
            many = len(found.claimed)
            raise WaitTimeout(
                f"{plan.path} is {found.stand.state}, but {many} of its tasks "
                f"{'is' if many == 1 else 'are'} still claimed (task-{task} by worker {worker}): "
                "their results would be lost. Let them end (--wait SECONDS), or stop the workers, "
                "then export it"
            )
        time.sleep(LOOK_S)


def _release_vacant(paths: Paths, claims_nodes: set[str]) -> Step[None]:
    """Release claims as workers do, because the last worker may have vanished."""
    vacant = (yield from orphaned_claims(paths)).vacant
    for worker in claims_nodes.intersection(vacant):
        yield from clear_claims(paths, worker)


def _write(plan: PlanReader, record: PlanRecord, found: Survey, target: Path) -> Exported | None:
    """Write the file. Returns None, and writes no file, if the plan changed while it was read."""
    client: Connection = plan.client
    run, paths, number = client.transport.run, client.paths, plan.number
    tasks = plan.status().tasks
    header = Header(
        record.name, record.uid, found.stand.state, tasks, found.creates, plan.path, time.time()
    )
    with ArchiveWriter(target, header) as writer:
        seals = FileSeals(client.file_keys, header.uid)
        writer.add(seals.seal(Znode("", found.record)))
        packer = Packer(client.values, plan.path)

        def add(znode: Znode) -> None:
            for piece in packer.pieces(znode) if _kinds(znode) else ():
                writer.add_piece(piece)
            writer.add(seals.seal(znode))

        first = run(read_plan(paths, number, found.ranks, add))
        second = run(read_plan(paths, number, found.ranks, None))
        after = run(survey(paths, number))
        if first != second or after.stand != found.stand or after.claimed:
            return None
        digest = writer.finish()
        return Exported(target, found.stand.state, tasks, writer.znodes, digest)


def import_plan(
    client: Connection, file: str | Path, *, copy: bool = False, any_secret: bool = False
) -> str:
    """Make a plan from an exported file, under the client's root. Returns its number.

    The new plan is paused if the exported one was. It has the same task numbers, attempts, logs and
    kept results, and no committed task runs again. The whole file is checked before anything is
    written. After an error, the import removes what it has written. If the process is killed
    meanwhile, a plan named "… (half imported)" is left. It does not run: remove it like any other.

    Raises PlanError if this root has the plan already, or another plan has its key (with `copy` a
    second plan is made all the same, without the key), and ZkplanError if the file cannot be read.
    Raises PayloadUndecodable if the file is damaged, not an exported plan, of a newer format, or
    sealed with another secret. `any_secret` skips the check of the seals: everything in the file is
    then sealed with the keys of this client, no matter who wrote it.
    """
    source = Path(file)
    store = client.values.store
    header = read_through(source, client, any_secret)
    transport, paths = client.transport, client.paths
    twin = None if copy else transport.run(find_twin(paths, header.uid))
    if twin is not None:
        raise PlanError(
            twin,
            f"the plan in {source} exists already, as {twin}: remove {twin} first, or ask for a "
            "second plan (--copy), whose tasks then run a second time",
        )
    seals = FileSeals(client.file_keys, header.uid, not any_secret)
    with open_archive(source) as (header, lines):
        items = seals.opened(source, lines)
        first = next(items, None)
        if not isinstance(first, Znode) or first.path:
            raise PayloadUndecodable(f"{source} cannot be imported: it does not begin with a plan")
        record = PlanRecord.from_bytes(first.data)
        if copy and record.key:
            record = replace(record, key="")  # the other plan keeps the key
            first = first._replace(data=record.to_bytes())
        number, mark = transport.run(begin(paths, record))
        unpacker = None
        try:
            home = transport.ask(ReadData(paths.plan(number)))
            if home is None:
                raise PlanNotFound(paths.plan(number), "the plan was removed during its import")
            unpacker = Unpacker(store, paths.plan(number), record.uid, home.created_ms)
            znodes = unpacker.znodes(items)
            transport.run(fill(paths, number, mark, header.creates, first.data, znodes))
        except BaseException:
            _remove_half(client, number, unpacker)
            raise
    return number


def _remove_half(client: Connection, number: str, unpacker: Unpacker | None) -> None:
    path = client.paths.plan(number)
    try:
        client.transport.run(removal.remove(path))
        if unpacker is not None:
            unpacker.undo()
    except ZkplanError as error:
        logger.warning(
            "%s is only half imported and could not be removed (%s): `%s`",
            path, error, client.command(f"plan rm {int(number)}"),
        )  # fmt: skip


def read_through(file: Path, client: Connection, any_secret: bool) -> Header:
    """Check the whole file, and the seal of each line unless `any_secret`. Blobs need a store."""
    complete = Complete(file, client.values.store)
    with open_archive(file) as (header, lines):
        seals = FileSeals(client.file_keys, header.uid, not any_secret)
        for znode in seals.opened(file, lines):
            if isinstance(znode, Piece):
                complete.see_piece(znode)
                continue
            kinds = _kinds(znode)
            if kinds:
                complete.see(znode)
            if znode.path.startswith("task-") and int(number_of(znode.path[:15])) >= header.creates:
                raise PayloadUndecodable(f"{file} cannot be imported: its counter is damaged")
            if kinds and not any_secret:
                _check_payload(file, client.codec, kinds, znode)
    return header


def _kinds(znode: Znode) -> bytes:
    """The kinds of payload that this znode may hold; empty for none."""
    here, _, name = znode.path.partition("/")
    if here == "results":
        return VALUE + FAILURE
    if not here.startswith("task-"):
        return b""
    return _SEALED.get(name.partition("-")[0], b"") if name else TASK


def _check_payload(file: Path, codec: Codec, kinds: bytes, znode: Znode) -> None:
    data = outcome_in(znode.data) if "/arg-" in znode.path else znode.data
    try:
        codec.open(kinds, without_sources(data) if kinds == TASK else data)
    except PayloadUndecodable as error:
        raise PayloadUndecodable(f"{file}: {znode.path}: {error}") from None
