"""With a secret, no payload that is not signed with it runs any code, wherever it is left."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from zkplan.errors import PayloadUndecodable
from zkplan.inspection import task_details, task_info, unfinished
from zkplan.protocol.records import Failure, TaskRecord
from zkplan.protocol.requests import Node
from zkplan.runtime.context import Context
from zkplan.runtime.failures import VanishedWorkers, last_failure
from zkplan.runtime.job import Job
from zkplan.runtime.runner import Runner
from zkplan.serialization import codec as codecs
from zkplan.serialization import functions
from zkplan.serialization.codec import FAILURE, LOG, MAGIC, TASK, VALUE, Codec
from zkplan.store.values import Values
from zkplan.waiting.one_result import open_outcome

from .attempts import THREADS, Edge, job_of

OURS = Codec(b"ours")
VALUES = Values(None, OURS)  # type: ignore[arg-type]
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


def forged(kind: bytes) -> list[bytes]:
    """Envelopes of a kind that nobody with our secret has sealed."""
    found = []
    for body in bodies(kind):
        ours = OURS.seal(kind, b"P" + pickle.dumps(1))
        found += [Codec().seal(kind, body), Codec(b"theirs").seal(kind, body), body]
        found += [MAGIC + kind + bytes(16) + body, ours[:19] + body, ours + body]
        # Signed by us, but as another kind of payload.
        found += [MAGIC + kind + OURS.seal(other, body)[3:] for other in (TASK, VALUE, FAILURE, LOG)
                  if other != kind]  # fmt: skip
    return found


def job(**parts: Any) -> Job:
    """A claimed `len([])`, but for the `parts` of what was loaded."""
    made = job_of(len, (Edge(0),), (OURS.seal_value([]),), codec=OURS)
    for name, part in parts.items():
        setattr(made.loaded, name, part)
    return Job(made.loaded)


def runner() -> Runner:
    return Runner(None, VALUES, None, VanishedWorkers(), (), bool, THREADS)  # type: ignore[arg-type]


def test_the_job_of_these_tests_runs_as_it_is() -> None:
    ended = runner().run(job())
    assert OURS.open(VALUE, ended.outcome)[1] == functions.named(codecs.dump(0), "len"), ended


def test_a_bomb_that_we_signed_would_explode() -> None:
    """Else these tests would show nothing."""
    sealed = OURS.seal(VALUE, bodies(VALUE)[0])
    codecs.load(OURS.open(VALUE, sealed)[1])
    assert RAN == ["decoded"]
    RAN.clear()


def left_to_others(damaged: Job) -> str:
    """Why it cannot run here; the attempt is not used up."""
    ended = runner().run(damaged)
    assert ended.failure is None
    return ended.cannot_run


@pytest.mark.parametrize("envelope", forged(TASK))
def test_a_forged_definition_is_not_run(envelope: bytes) -> None:
    assert left_to_others(job(record=envelope))
    assert "undecodable" in task_info._definition(OURS, envelope)[0]
    assert unfinished.name_of(OURS, envelope) is None


def test_what_another_secret_signed_is_refused_for_its_signature() -> None:
    for codec in (Codec(), Codec(b"theirs")):
        assert "signature" in left_to_others(job_of(len, ([],), codec=codec))
        assert "signature" in left_to_others(job(arguments=[codec.seal_value([])]))


@pytest.mark.parametrize("envelope", [*forged(VALUE), *forged(FAILURE)])
def test_a_forged_argument_or_result_is_not_decoded(envelope: bytes) -> None:
    assert left_to_others(job(arguments=[envelope]))
    assert left_to_others(job(result=envelope))
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
def test_a_value_that_is_not_asked_for_is_not_decoded(body: bytes) -> None:
    assert "bytes" in task_details._outcome(OURS, OURS.seal(VALUE, body))["outcome"]
    node = Node(OURS.seal(LOG, body), 0, 0, 0, 0, 0, 0)
    assert "bytes" in task_details._entry(OURS, node)


def test_what_a_value_raises_where_it_is_shown_is_told() -> None:
    class Shy:
        def __repr__(self) -> str:
            raise RuntimeError("not to be shown")

    values = task_details._Values(VALUES, "/p")
    shown = values.text(codecs.dump(Shy()))
    assert shown == "(undecodable: RuntimeError: not to be shown)"
    assert values.failed == ["RuntimeError: not to be shown"]


def test_a_signed_failure_that_is_damaged_is_told() -> None:
    """Somebody with the secret, of a version to come, may have written it."""
    sealed = OURS.seal(FAILURE, b"\0\0\0\x02[]")
    assert "undecodable" in task_details._outcome(OURS, sealed)["outcome"]
