"""Data sealed for one place cannot be opened elsewhere, if changed, or with another key."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkplan.author.export_file import FileSeals
from zkplan.author.export_snapshot import Znode
from zkplan.errors import InvalidSettings, InvariantViolated, PayloadRefused, PayloadUndecodable
from zkplan.protocol.fields import Unproven
from zkplan.protocol.records import control_from_bytes
from zkplan.protocol.requests import Create, Multi, Node, ReadData, SetData
from zkplan.protocol.transactions import ask
from zkplan.values.guard import Guard
from zkplan.values.keyring import (
    AES,
    SECRET,
    SIGNING,
    Key,
    Ring,
    new_key,
    parse_keys,
    public_key,
    without_proof,
)
from zkplan.values.sealed_places import Places

KEYS = [new_key(f"k-{kind}", kind) for kind in (SECRET, AES, SIGNING)]
PLAN = "/r/plan-0000000004"
#: One znode of each kind, and of a kind to come; none may stand for another.
PLACES = [
    PLAN, "/r/plan-0000000005", f"{PLAN}/ready", f"{PLAN}/done", f"{PLAN}/task-0000000005",
    f"{PLAN}/task-0000000006", f"{PLAN}/task-0000000006/log-0000000000",
    f"{PLAN}/task-0000000005/log-0000000000", f"{PLAN}/task-0000000005/result",
    f"{PLAN}/results/0000000005", f"{PLAN}/dead/0000000005", "/r/workers/w",
    f"{PLAN}/task-0000000005/gate", "/r/gates", "/r/gates/0000000004-5000-0000000005.0.0",
    "/r/keys/00ff", f"{PLAN}/add-ids/key-00ff", "/r/schedules/nightly/next-1",
    "/r/plan-0000000005/done", "/r/plan-0000000005/task-0000000005", "/r/schedules/nightly",
    "/r/limits/db", "/r/limits/plan-0000000004", "/r/bounds",
]  # fmt: skip
OPEN = [
    "/r", f"{PLAN}/queues/gpu", "/r/claims/w/0000000004-0000000005.0.0", "/r/active/0000000004",
    f"{PLAN}/runnable/5000-0000000005.0.0", f"{PLAN}/add-count", f"{PLAN}/task-0000000005/ready",
    f"{PLAN}/task-0000000005/dep-0000000000", f"{PLAN}/task-0000000005/prov-0000000000",
    f"{PLAN}/task-0000000005/owner", "/other/plan-1",
    f"{PLAN}/task-0000000005/takes-failures", "/r/limits/db/permit-0",
]  # fmt: skip

REFUSED = bytes(Unproven(PayloadRefused("")))


def place_of(path: str) -> bytes:
    place = Places("/r").of(path)
    assert place is not None
    return f"{place[0]}@5/{place[1]}".encode()


def test_every_kind_of_record_has_a_place_of_its_own_and_names_have_none() -> None:
    assert len({place_of(path) for path in PLACES}) == len(PLACES)
    assert [Places("/r").of(path) for path in OPEN] == [None] * len(OPEN)


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.kind)
def test_sealed_data_is_opened_only_in_its_own_place(key: Key) -> None:
    ring, elsewhere = Ring([key], b"root"), Ring([key], b"another")

    @given(st.binary(max_size=50), st.sampled_from(PLACES), st.data())
    def fuzz(body: bytes, path: str, data: st.DataObject) -> None:
        sealed = ring.seal(place_of(path), body)
        assert ring.open(place_of(path), sealed) == body
        other = data.draw(st.sampled_from([each for each in PLACES if each != path]))
        for opens, place in ((ring, place_of(other)), (elsewhere, place_of(path))):
            with pytest.raises(PayloadRefused, match="not sealed for this place"):
                opens.open(place, sealed)
        at = data.draw(st.integers(0, len(sealed) - 1))
        changed = bytearray(sealed)
        changed[at] ^= data.draw(st.integers(1, 255))
        with pytest.raises(PayloadUndecodable):
            ring.open(place_of(path), bytes(changed))
        with pytest.raises(PayloadUndecodable):
            ring.open(place_of(path), sealed[:at])

    fuzz()


@given(st.binary(max_size=80))
def test_garbage_is_refused_by_a_key_ring(garbage: bytes) -> None:
    for sealed in (garbage, b"z3" + garbage):
        with pytest.raises(PayloadUndecodable):
            Ring(KEYS, b"root").open(b"here", sealed)
    assert isinstance(without_proof(b"x" + garbage), bytes)


@given(st.text(max_size=80))
def test_any_text_is_read_as_keys_or_refused_unshown(text: str) -> None:
    for line in (text, f"a:{text}", f"a:aes:{text}"):
        said = ""
        try:
            parse_keys(line, "the file k")
        except InvalidSettings as error:
            said = str(error)
        assert said.startswith("the file k") == bool(said)
        assert len(text) < 12 or text not in said


def test_a_key_that_is_the_digest_of_a_word_is_accepted() -> None:
    """It looks random. The page on security says so, and that who guesses the word has it."""
    for word in (b"password", b"zkplan", b""):
        assert parse_keys(f"k:{sha256(word).hexdigest()}", "the file k")[0].can_seal
        with pytest.raises(InvalidSettings):
            parse_keys(f"k:{word.ljust(32, b'-').hex()}", "the file k")


def test_the_first_key_seals_all_keys_open_and_an_id_alone_does_not_match() -> None:
    old, new = new_key("old"), new_key("new")
    before, both, after = (Ring(keys, b"r") for keys in ([old], [new, old], [new]))
    for ring in (before, both):
        assert both.open(b"p", ring.seal(b"p", b"it")) == b"it"
    assert both.is_current(both.seal(b"p", b"it")) > both.is_current(before.seal(b"p", b"it"))
    for stranger in (before, Ring([new_key("new")], b"r")):
        with pytest.raises(PayloadUndecodable, match="another secret") as caught:
            after.open(b"p", stranger.seal(b"p", b"it"))
        assert not isinstance(caught.value, PayloadRefused)


def test_a_public_key_opens_data_sealed_by_its_private_key_and_seals_nothing() -> None:
    private = new_key("mine", SIGNING)
    (public,) = parse_keys(public_key(private).to_line(), "a file")
    sealed = Ring([private], b"r").seal(b"p", b"it")
    assert Ring([public], b"r").open(b"p", sealed) == b"it"
    with pytest.raises(InvalidSettings, match="can only read"):
        Ring([public], b"r").seal(b"p", b"it")
    assert private.material.hex() not in repr(private) + private.name


def test_a_line_of_an_exported_file_opens_only_for_its_own_znode() -> None:
    seals, file = FileSeals(KEYS, "uid"), Path("plan")
    line = seals.seal(Znode("task-0000000005", b"it"))
    assert seals.open(file, line).data == b"it"
    for other in (line._replace(path="task-0000000006"), line._replace(data=b"it")):
        with pytest.raises(PayloadUndecodable, match="plan: task-"):
            seals.open(file, other)
    for keys, uid in ((KEYS, "another"), ([], "uid"), ([new_key("b")], "uid")):
        with pytest.raises(PayloadUndecodable, match="secret-files"):
            FileSeals(keys, uid).open(file, line)
    assert FileSeals([], "uid", checks=False).open(file, line).data == b"it"


def run(guard: Guard, step: Any, answers: list[Any]) -> Any:
    """Run a step, and give these answers one after the other."""
    guarded = guard.step(step)
    try:
        next(guarded)
        for answer in answers:
            guarded.send(answer)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the step asks for more")


def test_an_order_counts_only_for_its_worker_and_version() -> None:
    root, first = Node(b"", 0, 0, 1, 0, 0, 0, 1), Node(b"{}", 0, 0, 0, 0, 0, 0, 7)

    def sealed(path: str) -> bytes:
        step: Any = Guard(KEYS, "/r").step(ask(Multi([SetData(path, b"stop", 0)])))
        next(step)
        step.send(first)
        return bytes(step.send(root).ops[0].data)

    def opened(path: str, node: Node) -> bytes:
        return bytes(run(Guard(KEYS, "/r"), ask(ReadData(path)), [node, root, root]).data)

    data = sealed("/r/workers/w")
    assert opened("/r/workers/w", first._replace(data=data, version=1)) == b"stop"
    for path, node in (
        ("/r/workers/x", first._replace(version=1)),
        ("/r/workers/w", first._replace(version=2)),
        ("/r/workers/w", first._replace(version=1, czxid=8)),
    ):
        assert opened(path, node._replace(data=data)) == REFUSED
    made: Any = next(Guard(KEYS, "/r").step(ask(Multi([Create("/r/workers/w", b"{}")]))))
    assert (made.ops[0].data, opened("/r/workers/w", first)) == (b"{}", b"{}")


def test_an_argument_is_sealed_as_the_outcome_of_the_task_that_it_names() -> None:
    root, plan = Node(b"", 0, 0, 1, 0, 0, 0, 1), Node(b"", 0, 0, 1, 0, 0, 0, 5)
    one, other = (f"{PLAN}/task-000000000{n}/arg-0000000000" for n in (6, 7))

    def sealed(data: bytes) -> list[bytes]:
        step: Any = Guard(KEYS, "/r").step(ask(Multi([Create(one, data), Create(other, data)])))
        next(step)
        step.send(plan)
        found = [op.data for op in step.send(root).ops]
        assert [each[:11] for each in found] == [data[:11]] * 2
        return found

    def opened(path: str, data: bytes) -> bytes:
        answers = [Node(data, 0, 0, 0, 0, 0, 0, 9), plan, root]
        try:
            found = run(Guard(KEYS, "/r"), ask(ReadData(path)), answers)
        except AssertionError:  # it asks once more for what is refused
            found = run(Guard(KEYS, "/r"), ask(ReadData(path)), [*answers, root, plan])
        return bytes(found.data)

    ended, told = b"0000000005=it", b"0000000005-it"
    first, second = sealed(ended)
    assert first == second, "one outcome is sealed once for all that get it"
    for data in (
        *(b"0000000006" + first[10:], b"000000000\0" + first[10:], first[11:], ended),
        b"0000000005-" + first[11:],
    ):
        assert opened(other, data) == REFUSED
    assert (opened(one, first), opened(other, first)) == (ended, ended)
    # A failure that may be retried, and what a gate was opened with, count in their place alone.
    first, second = sealed(told)
    assert (opened(one, first), opened(other, second)) == (told, told)
    for data in (first, b"0000000005=" + first[11:], b"0000000006-" + second[11:]):
        assert opened(other, data) == REFUSED


def knowing() -> Guard:
    """A guard that has met the plan, and seals with a key that never makes the same bytes twice."""
    guard, plan = Guard([KEYS[1]], "/r"), Node(b"", 0, 0, 1, 0, 0, 0, 5)
    step: Any = guard.step(ask(Multi([Create(f"{PLAN}/done", b"it")])))
    next(step)
    step.send(plan)
    step.send(Node(b"", 0, 0, 1, 0, 0, 0, 1))
    return guard


def sent(guard: Guard, *ops: Create) -> list[bytes]:
    """The data as this guard sends them, without asking for anything."""
    return [op.data for op in next(guard.step(ask(Multi(list(ops))))).ops]  # type: ignore[union-attr]


@pytest.mark.parametrize("path", [path for path in [*PLACES, *OPEN] if path.startswith(PLAN + "/")])
def test_the_fast_path_for_a_known_plan_seals_for_the_same_place(path: str) -> None:
    """There the guard cuts the place of a task out itself."""
    place, ring = Places("/r").of(path), Ring([KEYS[1]], b"1.0")
    if place is not None and place[2].ordered:
        return  # of that the version counts, too
    (data,) = sent(knowing(), Create(path, b"0000000005=it"))
    asked = []
    if path.endswith("/done"):  # the state: was it retried since?
        (state,) = sent(knowing(), Create(f"{PLAN}/ready", b'{"state":"paused"}'))
        asked = [Node(state, 0, 0, 0, 0, 0, 0, 9)]
    read = run(knowing(), ask(ReadData(path)), [Node(data, 0, 0, 0, 0, 0, 0, 9), *asked])
    assert read.data == b"0000000005=it"
    if place is None:
        assert data == b"0000000005=it"
    elif not place[2].argument:
        assert ring.open(f"plan-0000000004@5/{place[1]}".encode(), data) == b"0000000005=it"


def test_only_arguments_with_the_same_outcome_share_one_seal() -> None:
    one, other = (f"{PLAN}/task-000000000{n}/arg-0000000000" for n in (6, 7))
    for data, count in ((b"0000000005=it", 1), (b"0000000005-it", 2)):
        found = sent(knowing(), Create(one, data), Create(other, data))
        assert len(set(found)) == count
        for path, sealed in zip((one, other), found, strict=True):
            read = run(knowing(), ask(ReadData(path)), [Node(sealed, 0, 0, 0, 0, 0, 0, 9)])
            assert read.data == data


def test_a_znode_outside_of_plans_with_a_path_like_a_task_is_not_sealed() -> None:
    """A path that a user gives may have the same letters at the same places."""
    below, beside = "/r/approvals-2026q/task-0000000001/ready", "/q/plan-0000000004/task-0000000006"
    node = Node(b"it", 0, 0, 0, 0, 0, 0, 9)
    root = Node(b"", 0, 0, 1, 0, 0, 0, 1)
    assert isinstance(run(knowing(), ask(ReadData(below)), [node, root]).data, Unproven)
    (sealed,) = sent(knowing(), Create("/r" + beside[2:], b"it"))
    read = run(knowing(), ask(ReadData(beside)), [node._replace(data=sealed)])
    assert read.data == sealed


def test_data_read_of_a_plan_removed_meanwhile_counts_as_missing_not_as_forged() -> None:
    step = ask(ReadData(f"{PLAN}/done"))
    assert run(Guard(KEYS, "/r"), step, [Node(b"z3", 0, 0, 0, 0, 0, 0, 9), None]) is None


def test_unproven_data_reaches_a_step_marked_and_cannot_be_written_back() -> None:
    node = Node(b'{"state":"running"}', 1, 0, 0, 0, 0, 0, 9)
    answers = [node, *[node] * 4]
    found = run(Guard(KEYS, "/r"), ask(ReadData(f"{PLAN}/ready")), answers)
    assert isinstance(found.data, Unproven)
    assert control_from_bytes(found.data) == "paused"
    for op in (
        Create(f"{PLAN}/results/0000000005", found.data),
        Create(f"{PLAN}/task-", b"no number is predicted", sequence=True),
    ):
        with pytest.raises((PayloadRefused, InvariantViolated)):
            next(Guard(KEYS, "/r").step(ask(Multi([op]))))
