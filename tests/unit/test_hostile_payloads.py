"""With keys, a payload that is not sealed for its place runs no code, wherever it is put."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from zkplan.author.results import open_outcome
from zkplan.errors import PayloadUndecodable
from zkplan.protocol.fields import Unproven
from zkplan.protocol.records import Failure, TaskRecord
from zkplan.protocol.requests import Node
from zkplan.runtime.attempts import VanishedWorkers, last_failure
from zkplan.runtime.context import Context
from zkplan.runtime.job import Job
from zkplan.runtime.runner import Runner
from zkplan.transport.server_clock import CLOCK, ServerClock
from zkplan.values import codec as codecs
from zkplan.values import function_codec as functions
from zkplan.values.codec import FAILURE, LOG, MAGIC, TASK, VALUE, Codec
from zkplan.values.keyring import Ring, new_key
from zkplan.values.plan_values import Values
from zkplan.views import task_details, task_info, unfinished

from .attempts import SOURCE, THREADS, Edge, job_of

OURS = Codec()
VALUES = Values(None, OURS)  # type: ignore[arg-type]
RING, THEIRS = (Ring([new_key(name)], b"root") for name in ("ours", "theirs"))
HERE = b"plan-0000000004@5/task-0000000005"
#: Where a value is opened, a failure is, too; and where a failure, a log entry.
KINDS_WITH = {VALUE: VALUE + FAILURE, LOG: LOG + FAILURE, FAILURE: FAILURE + VALUE + LOG}
RAN: list[str] = []


def explode(where: str) -> str:
    RAN.append(where)
    return where


class Bomb:
    """Whoever decodes it runs code."""

    def __reduce__(self) -> Any:
        return explode, ("decoded",)


@pytest.fixture(autouse=True)
def nothing_ran() -> Iterator[None]:
    RAN.clear()
    yield
    assert RAN == []


def bodies(kind: bytes) -> list[bytes]:
    """What the payloads of a kind hold, with a bomb in it."""
    bomb = pickle.dumps(Bomb())
    plain = [b"P" + bomb, b"D" + functions.HERE + bomb, bomb]
    function = b"F" + functions.HERE + bomb
    if kind == TASK:
        call = codecs.dump(((), {}))
        return [TaskRecord(0, b"{}", part, call).to_bytes() for part in (function, *plain)] + [
            TaskRecord(0, b"{}", b"Rbuiltins:len", part).to_bytes() for part in plain
        ]
    if kind == FAILURE:
        return [Failure("E", "", "", "w", 1, 0.0, part).to_bytes() for part in plain]
    return plain


def opened(sealed: bytes, source: str = "") -> bytes:
    """What a step gets of these data of its place; `source`: of an argument from that task."""
    try:
        return (f"{source}=" if source else "").encode() + RING.open(HERE, sealed)
    except PayloadUndecodable as error:
        return Unproven(error)


def forged(kind: bytes) -> list[bytes]:
    """What a step gets of data with a bomb that nobody with our key has sealed for this place."""
    found = []
    for body in bodies(kind):
        bomb = OURS.seal(kind, body)
        ours = RING.seal(HERE, OURS.seal(kind, b"P" + pickle.dumps(1)))
        found += [bomb, body, THEIRS.seal(HERE, bomb), RING.seal(b"elsewhere", bomb)]
        found += [ours[:23] + bomb, ours + body, ours[:7] + bytes(16) + bomb]
    return [opened(each) for each in found] + [
        # Sealed by us, but as another kind of payload, or damaged.
        *(OURS.seal(other, bodies(kind)[0]) for other in (TASK, VALUE, FAILURE, LOG)
          if other not in KINDS_WITH.get(kind, kind)),
        MAGIC + kind + bytes(16) + bodies(kind)[0],
    ]  # fmt: skip


def job(**parts: Any) -> Job:
    """A claimed `len([])`, but for the `parts` of what was loaded."""
    made = job_of(len, (Edge(0),), (OURS.seal_value([]),), codec=OURS)
    for name, part in parts.items():
        setattr(made.loaded, name, part)
    return Job(made.loaded)


def runner() -> Runner:
    return Runner(
        transport=None,  # type: ignore[arg-type]
        values=VALUES,
        plan_within=None,  # type: ignore[arg-type]
        vanished=VanishedWorkers(),
        queues=(),
        is_busy=bool,
        isolation=THREADS,
        clock=CLOCK,
        server_clock=ServerClock(),
    )


def test_the_unchanged_job_of_these_tests_runs() -> None:
    ended = runner().run(job())
    assert OURS.open(VALUE, ended.outcome)[1] == functions.named(codecs.dump(0), "len"), ended


def test_a_payload_that_runs_code_does_so_if_it_is_properly_signed() -> None:
    """Else these tests would show nothing."""
    sealed = OURS.seal(VALUE, bodies(VALUE)[0])
    codecs.load(OURS.open(VALUE, sealed)[1])
    assert RAN == ["decoded"]
    RAN.clear()


def refused(damaged: Job) -> str:
    """Why it does not run: never, or not here, where a key may be missing."""
    ended = runner().run(damaged)
    if ended.failure is None:
        return ended.cannot_run
    assert (ended.failure.kind, ended.final) == ("PayloadRefused", True)
    return ended.failure.message


@pytest.mark.parametrize("envelope", forged(TASK))
def test_a_forged_definition_is_not_run(envelope: bytes) -> None:
    assert refused(job(record=envelope))
    assert "undecodable" in task_info._definition(OURS, envelope)[0]
    assert unfinished.name_of(OURS, envelope) is None


def test_a_moved_payload_fails_its_task_and_an_unknown_key_leaves_it_to_others() -> None:
    value = OURS.seal_value([])
    moved, strange = RING.seal(b"elsewhere", value), THEIRS.seal(HERE, value)
    for sealed, told in (
        (moved, "for this place"),
        (value, "any key"),
        (strange, "another secret"),
    ):
        ended = runner().run(job(arguments=[opened(sealed, SOURCE)]))
        assert told in (ended.failure.message if ended.failure else ended.cannot_run)
        assert (ended.failure is None) == (sealed is strange)
    assert runner().run(job(arguments=[opened(RING.seal(HERE, value), SOURCE)])).outcome


@pytest.mark.parametrize("envelope", [*forged(VALUE), *forged(FAILURE)])
def test_a_forged_argument_or_result_is_not_decoded(envelope: bytes) -> None:
    assert refused(job(arguments=[envelope]))
    assert refused(job(result=envelope))
    with pytest.raises(PayloadUndecodable):
        open_outcome(VALUES, envelope, "/p/task-1", "t")
    asked_for = task_details._Values(VALUES, "/p")
    told = task_details._outcome(OURS, envelope, asked_for)
    assert all("undecodable" in told[name] for name in ("outcome", "value"))
    assert len(asked_for.failed) == 1


@pytest.mark.parametrize("envelope", [*forged(LOG), *forged(FAILURE)])
def test_a_forged_log_is_not_decoded(envelope: bytes) -> None:
    damaged = job(logs=[envelope])
    nothing: Any = None
    assert Context(damaged, nothing, OURS, nothing).logs == []
    assert last_failure(damaged, OURS, "").kind == "WorkerLost"
    node = Node(envelope, 0, 0, 0, 0, 0, 0)
    asked_for = task_details._Values(VALUES, "/p")
    for values in (None, asked_for):
        assert "undecodable" in task_details._entry(OURS, node, values=values)
    assert len(asked_for.failed) == 1


@pytest.mark.parametrize("body", bodies(VALUE)[:2])
def test_a_value_not_asked_for_is_not_decoded(body: bytes) -> None:
    assert "bytes" in task_details._outcome(OURS, OURS.seal(VALUE, body))["outcome"]
    node = Node(OURS.seal(LOG, body), 0, 0, 0, 0, 0, 0)
    assert "bytes" in task_details._entry(OURS, node)


def test_an_error_raised_while_a_value_is_shown_is_shown() -> None:
    class Shy:
        def __repr__(self) -> str:
            raise RuntimeError("not to be shown")

    values = task_details._Values(VALUES, "/p")
    shown = values.text(codecs.dump(Shy()))
    assert shown == "(undecodable: RuntimeError: not to be shown)"
    assert values.failed == ["RuntimeError: not to be shown"]


def test_a_signed_failure_that_is_damaged_is_shown_as_undecodable() -> None:
    """Somebody with the secret, of a version to come, may have written it."""
    sealed = OURS.seal(FAILURE, b"\0\0\0\x02[]")
    assert "undecodable" in task_details._outcome(OURS, sealed)["outcome"]
