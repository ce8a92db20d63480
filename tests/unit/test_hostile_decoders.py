"""Every decoder of data from ZooKeeper returns a value or raises its documented error.

Whatever comes, and in bounded memory. A decoder without a fuzz test here makes a test fail: see
`found_decoders`.
"""

from __future__ import annotations

import ast
import gzip
import json
import pkgutil
import re
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zkplan
from zkplan.author import archives as archived
from zkplan.author import export_snapshot as picture
from zkplan.author.export_file import Header
from zkplan.errors import FunctionNotAllowed, InvariantViolated, PayloadUndecodable
from zkplan.protocol import fields, layout, records, task_options
from zkplan.protocol import transactions as shared
from zkplan.protocol.core import add as staged
from zkplan.protocol.core import edges
from zkplan.protocol.core import edges as sources
from zkplan.protocol.core import workers as worker_record
from zkplan.protocol.features import bounds, gates, limits, schedules
from zkplan.protocol.history import compaction
from zkplan.protocol.history import segments as history
from zkplan.runtime.attempts import is_final
from zkplan.service import answers as paging
from zkplan.service import lease_records as leased
from zkplan.service.answers import Problem
from zkplan.values import blobs as blob
from zkplan.values import codec as codecs
from zkplan.values import codec as failures
from zkplan.values import function_codec as function_bytes
from zkplan.values import functions_by_name as by_name
from zkplan.values import json_values
from zkplan.values.blobs import Reference
from zkplan.values.check_blobs import references_in
from zkplan.values.codec import FAILURE, LOG, TASK, VALUE, Codec
from zkplan.values.shared import SharedReference
from zkplan.views import dependencies as neighbours
from zkplan.views import unfinished
from zkplan.views.history import Events
from zkplan.views.history_state import KINDS
from zkplan.views.timeline import timeline

from .hostile_bytes import BODIES, ENVELOPES, HUGE, NAMES, PICKLES, as_text

PACKAGE = Path(zkplan.__file__).parent
#: Where nothing of the tree is decoded: servers, what starts processes, what shows or measures.
#: Settings come from files and a pipe of the user: test_settings.py has a fuzz test of the files.
ELSEWHERE = ("embedded", "testing", "cli", "local_run.py")
#: Settings, which a user writes.
OF_USERS = ("basics/profiles.py", "basics/settings.py", "basics/settings_fields.py")
#: The framing of answers: its lengths come from the server, not from who wrote a znode.
FRAMING = "transport/packets.py"
ADDRESSES = "transport/addresses.py"
NAMED = re.compile(
    r"parse_\w+|from_(bytes|json|value)|\w+_from_bytes|delayed_of|number_of|load(_\w+)?"
)
READERS = ("loads", "unpack", "unpack_from", "b64decode")
CODEC = Codec()
#: The claim to test with when a drawn name is not that of a claim.
CLAIM = layout.ClaimName("0000000001", "0000000002", 9_999_999_999, "u")
SPAN = history.Span(7, 9, "merged-0000000007-0000000009.1", 1)
#: The heads of an unpacked segment, of a packed one, and of none.
HEADS = (history.MAGIC + b"j", history.MAGIC + b"z", b"")


class Fuzzed(NamedTuple):
    decode: Callable[[Any], Any]
    garbage: st.SearchStrategy[Any]
    allowed: tuple[type[BaseException], ...] = ()


RECORD = (PayloadUndecodable,)
DECODERS: dict[str, Fuzzed] = {
    "protocol.layout.parse_number": Fuzzed(layout.parse_number, NAMES),
    "protocol.layout.parse_plan": Fuzzed(layout.parse_plan, NAMES),
    "protocol.layout.parse_task": Fuzzed(layout.parse_task, NAMES),
    "protocol.layout.parse_gate": Fuzzed(layout.parse_gate, NAMES),
    "protocol.core.edges.sources_of": Fuzzed(lambda data: sources.sources_of(data, 3), BODIES),
    "protocol.core.add._unpack": Fuzzed(
        lambda data: staged.tasks_of([struct.pack(">IIII", len(data), 1, 2, 0) + data + b"dep 00"]),
        BODIES,
        RECORD,
    ),
    "protocol.features.gates.Condition.from_bytes": Fuzzed(
        gates.Condition.from_bytes, BODIES, RECORD
    ),
    "protocol.layout.parse_entry": Fuzzed(layout.parse_entry, NAMES),
    "protocol.layout.parse_claim": Fuzzed(layout.parse_claim, NAMES),
    "protocol.layout.parse_delayed": Fuzzed(layout.parse_delayed, NAMES),
    "protocol.layout.parse_lease": Fuzzed(layout.parse_lease, NAMES),
    "service.lease_records.parse_id": Fuzzed(leased.parse_id, NAMES),
    "service.answers.parts_of": Fuzzed(lambda text: paging.parts_of(text, str), NAMES, (Problem,)),
    "protocol.layout.number_of": Fuzzed(layout.number_of, NAMES, (InvariantViolated,)),
    "protocol.fields.from_json": Fuzzed(lambda data: fields.from_json(data, "it"), BODIES, RECORD),
    "protocol.task_options.TaskOptions.from_json": Fuzzed(
        task_options.TaskOptions.from_json, BODIES, RECORD
    ),
    "protocol.task_options.TaskOptions.from_value": Fuzzed(
        lambda data: task_options.TaskOptions.from_value(as_json(data)), BODIES, RECORD
    ),
    "protocol.records.PlanRecord.from_bytes": Fuzzed(records.PlanRecord.from_bytes, BODIES, RECORD),
    "protocol.records.TaskRecord.from_bytes": Fuzzed(records.TaskRecord.from_bytes, BODIES, RECORD),
    "protocol.core.edges.Edge.from_bytes": Fuzzed(edges.Edge.from_bytes, BODIES, RECORD),
    "protocol.records.Failure.from_bytes": Fuzzed(records.Failure.from_bytes, BODIES, RECORD),
    "protocol.records.Dead.from_bytes": Fuzzed(records.Dead.from_bytes, BODIES),
    "protocol.core.workers.WorkerRecord.from_bytes": Fuzzed(
        lambda data: worker_record.WorkerRecord.from_bytes("w", data, 0), BODIES
    ),
    "protocol.records.count_from_bytes": Fuzzed(records.count_from_bytes, BODIES),
    "protocol.records.share_from_bytes": Fuzzed(records.share_from_bytes, BODIES),
    "protocol.records.taken_from_bytes": Fuzzed(records.taken_from_bytes, BODIES),
    "protocol.records.control_from_bytes": Fuzzed(records.control_from_bytes, BODIES),
    "values.codec.Codec.open": Fuzzed(
        lambda data: CODEC.open(TASK + VALUE + FAILURE + LOG, data), ENVELOPES, RECORD
    ),
    "values.codec.load": Fuzzed(lambda data: codecs.load(b"P" + data), PICKLES, RECORD),
    "values.function_codec.load_function": Fuzzed(function_bytes.load_function, PICKLES, RECORD),
    "values.function_codec.describe_function": Fuzzed(function_bytes.describe_function, PICKLES),
    "values.json_values.load_json": Fuzzed(
        lambda data: json_values.load_json(b"J" + data), BODIES, RECORD
    ),
    "values.json_values.load_call_json": Fuzzed(
        lambda data: json_values.load_call_json(b"J[[[null]],{}," + data + b"]", [1]),
        BODIES,
        RECORD,
    ),
    "values.json_values.load_error": Fuzzed(
        lambda data: json_values.load_error(b'J["OSError",' + data + b"]"), BODIES
    ),
    "values.codec.load_failure": Fuzzed(
        lambda data: failures.load_failure(b"E" + data), BODIES, RECORD
    ),
    "runtime.attempts.is_final": Fuzzed(
        lambda text: is_final(
            task_options.TaskOptions(retry_if=text), ValueError(), CODEC.function
        ),
        NAMES,
    ),
    "values.functions_by_name.load_by_name": Fuzzed(
        lambda data: by_name.load_by_name(b"Jbuiltins:" + data),
        PICKLES,
        (*RECORD, FunctionNotAllowed),
    ),
    "protocol.transactions.pending_dependents": Fuzzed(shared.pending_dependents, BODIES),
    "protocol.transactions.claim_facts": Fuzzed(shared.claim_facts, BODIES),
    "protocol.records.queue_from_bytes": Fuzzed(records.queue_from_bytes, BODIES),
    "protocol.layout.parse_queue": Fuzzed(layout.parse_queue, NAMES),
    "protocol.layout.parse_lane": Fuzzed(layout.parse_lane, NAMES),
    "protocol.features.limits.period_from_bytes": Fuzzed(limits.period_from_bytes, BODIES),
    "protocol.features.limits.size_from_bytes": Fuzzed(limits.size_from_bytes, BODIES),
    "author.export_snapshot.delayed_of": Fuzzed(
        lambda name: picture.delayed_of(name, "0000000001"), NAMES
    ),
    "protocol.history.segments.parse_span": Fuzzed(history.parse_span, NAMES),
    "protocol.history.segments.records_from_bytes": Fuzzed(
        lambda data: [history.records_from_bytes(SPAN, head + data, 0) for head in HEADS],
        BODIES,
        RECORD,
    ),
    "protocol.history.compaction.Cut.from_bytes": Fuzzed(compaction.Cut.from_bytes, BODIES, RECORD),
    "protocol.features.bounds.Bounds.from_bytes": Fuzzed(bounds.Bounds.from_bytes, BODIES, RECORD),
    "author.archives.described": Fuzzed(
        lambda data: [archived.described("a", each) for each in (data, gzip.compress(data))], BODIES
    ),
    "views.dependencies._edge": Fuzzed(neighbours._edge, BODIES),
    "views.unfinished.name_of": Fuzzed(lambda data: unfinished.name_of(CODEC, data), ENVELOPES),
    "protocol.features.schedules.Definition.from_bytes": Fuzzed(
        schedules.Definition.from_bytes, BODIES, RECORD
    ),
    "protocol.features.schedules.Upcoming.from_bytes": Fuzzed(
        schedules.Upcoming.from_bytes, BODIES, RECORD
    ),
    "values.blobs.Reference.from_bytes": Fuzzed(Reference.from_bytes, BODIES, RECORD),
    "values.check_blobs.references_in": Fuzzed(references_in, ENVELOPES),
    "values.shared.SharedReference.from_bytes": Fuzzed(SharedReference.from_bytes, BODIES, RECORD),
    "values.blobs.decode": Fuzzed(blob.decode, BODIES, RECORD),
}
#: Decoders whose fuzz test is not of that shape: where it is.
ELSEWHERE_FUZZED = {
    **dict.fromkeys(
        ("protocol.history.segments.body_of", "protocol.history.segments._parsed"),
        "records_from_bytes",
    ),
    "author.export_file._Lines._line": "test_a_line_of_an_archive_is_a_record_or_refused",
    "author.export_file._Lines._znode": "test_a_line_of_an_archive_is_a_record_or_refused",
    "author.export_file._Lines._piece": "test_a_line_of_an_archive_is_a_record_or_refused",
    **dict.fromkeys(
        ("values.store_maintenance.parse_part", "values.store_maintenance.part_from_bytes"),
        "test_parts",
    ),
    "values.plan_values.Values.load": "codec.load, of a body or of blob.decode",
    "values.plan_values.Values.load_all": "codec.load, of bodies or of blob.decode",
    "values.plan_values.Values.load_function": "load_function, of a body or of blob.decode",
    "values.plan_values.Values.load_call": "load or load_call_json, of a body or of blob.decode",
    "values.codec.Codec.load": "codec.load, or json_values.load_json",
    "values.codec.Codec.load_call": "codec.load, or json_values.load_call_json",
    "values.codec.Codec.load_function": "functions.load_function, or by_name.load_by_name",
    "values.codec.Codec.load_exception": "codec.load, or json_values.load_error",
    "values.codec.Codec.function": "functions.load_function, behind a cache",
    "protocol.records.PlanRecord.to_bytes": "what it reads it has written",
    **dict.fromkeys(
        ("protocol.core.load.load_ahead", "protocol.core.load.load"), "a step: Edge.from_bytes"
    ),
    "runtime.isolation.receive": "test_isolation: what is no packet is refused without decoding",
    "runtime.isolation_slot.Slot._hear_guard": "what it reads the guard wrote, which runs no task",
    "protocol.core.load.Reading.fill": "a step's: it decodes by Edge.from_bytes",
    "values.keyring.parse_keys": "test_protection.test_any_text_is_read_as_keys_or_refused_unshown",
    "values.keyring.Ring.open": "test_protection.test_garbage_is_refused_by_a_key_ring",
    "values.keyring.Seal.open": "one of Ring.open",
    "values.keyring._Hash.open": "one of Ring.open",
    "values.aes_ed25519.Encrypting.open": "one of Ring.open",
    "values.aes_ed25519.Signing.open": "one of Ring.open",
    "author.export_file.FileSeals.open": "Ring.open, of a line",
}


def as_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def found_decoders() -> Iterator[str]:
    """Every function that is named as a decoder, or calls what turns bytes into values."""
    for path in sorted(PACKAGE.rglob("*.py")):
        inside = path.relative_to(PACKAGE)
        if inside.parts[0] in ELSEWHERE or str(inside) in (FRAMING, ADDRESSES, *OF_USERS):
            continue
        module = ".".join(inside.with_suffix("").parts).removesuffix(".__init__")
        for name, function in functions(ast.parse(path.read_text()), ""):
            if NAMED.fullmatch(function.name) or reads_bytes(function):
                yield f"{module}.{name}"


def functions(tree: ast.AST, within: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield within + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{within}{node.name}.")


def reads_bytes(function: ast.FunctionDef) -> bool:
    calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    return any(isinstance(call, ast.Attribute) and call.attr in READERS for call in calls)


def test_every_decoder_has_a_fuzz_test() -> None:
    found = set(found_decoders())
    assert len(found) > 20
    assert found - set(DECODERS) - set(ELSEWHERE_FUZZED) == set()
    for name in ELSEWHERE_FUZZED:
        pkgutil.resolve_name(f"zkplan.{name}")  # it has not gone


def tried(
    decode: Callable[[Any], Any], allowed: tuple[type[BaseException], ...], data: Any
) -> tuple[Any, str]:
    """What `decode` gives, and what it says where it refuses; any other error is passed on."""
    try:
        return decode(data), ""
    except allowed as error:
        return None, str(error)


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_gives_a_value_or_its_documented_error_for_any_bytes(name: str) -> None:
    decode, garbage, allowed = DECODERS[name]

    @settings(max_examples=150)
    @given(garbage)
    def fuzz(data: Any) -> None:
        found, said = tried(decode, allowed, data)
        assert len(said) < 2000
        if name.startswith("records."):
            repr(found).encode()
            # Half a character could be written to no log and to no terminal.
            str(getattr(found, "name", "")).encode()

    fuzz()


@pytest.mark.parametrize(
    "size",
    [pytest.param(s, marks=pytest.mark.slow) if s in ("numbers", "twins") else s for s in HUGE],
)
def test_a_megabyte_of_garbage_costs_bounded_memory_and_a_short_message(size: str) -> None:
    data = HUGE[size]
    for name, (decode, garbage, allowed) in DECODERS.items():
        tracemalloc.start()
        _, said = tried(decode, allowed, as_text(data) if garbage is NAMES else data)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(said) < 2000, name
        assert peak < 40 * len(data) + 10_000_000, name


@given(BODIES)
def test_decoded_options_hold_numbers_that_can_be_used(data: bytes) -> None:
    """The loop of a worker reckons with them, and would end by what cannot be reckoned."""
    try:
        options = task_options.TaskOptions.from_json(data)
    except PayloadUndecodable:
        return
    delay = zkplan.backoff.Backoff(
        options.retry_delay or 1.0, 2.0, max(300.0, options.retry_delay or 1.0), 0.3
    ).delay_s(1000, 0.5)
    assert delay >= 0.0
    assert float(options.timeout or 0.0) + options.attempts + options.priority < 1e13
    assert (type(options.name), type(options.attempts), type(options.priority)) == (str, int, int)
    assert {type(options.retry_delay), type(options.timeout)} <= {int, float, type(None)}
    assert options.retry_delay is not None
    assert options.keep in (None, True, False)


@given(BODIES)
def test_a_time_in_a_record_can_be_shown_as_a_date(data: bytes) -> None:
    from datetime import datetime

    for decode, field in (
        (records.PlanRecord.from_bytes, "created"),
        (records.Failure.from_bytes, "when"),
        (DECODERS["protocol.core.workers.WorkerRecord.from_bytes"].decode, "started"),
    ):
        try:
            datetime.fromtimestamp(getattr(decode(data), field))
        except PayloadUndecodable:
            continue


@given(BODIES, NAMES)
def test_a_claim_is_released_to_an_entry_that_workers_accept(data: bytes, name: str) -> None:
    claim = layout.parse_claim(name) or CLAIM._replace(n=7)
    facts = shared.claim_facts(data)
    entry = layout.Entry(facts.rank, claim.task, claim.n + 1, facts.a)
    assert layout.parse_lane(facts.queue) == facts.queue
    assert claim.n == 9_999_999_999 or layout.parse_entry(entry.name) == entry


@given(BODIES)
def test_a_pending_record_publishes_only_entries_that_workers_accept(data: bytes) -> None:
    for dependent in shared.pending_dependents(data):
        assert layout.parse_entry(dependent.entry.name) == dependent.entry
        assert dependent.k >= 0


#: Events near to real ones: each letter, and fields of any kind.
_WORDS = st.sampled_from(["", "r5.1.0", "d", "x", "running", "half \ud800"])
FIELDS = st.none() | st.integers(-(10**13), 10**13) | _WORDS
_HEADS = st.tuples(st.sampled_from(sorted(KINDS)), st.integers(-1, 3))
_RESTS = st.lists(FIELDS | st.lists(FIELDS, max_size=3), max_size=7)
EVENTS = st.lists(st.builds(lambda head, rest: [*head, *rest], _HEADS, _RESTS), max_size=8)


@given(_WORDS, EVENTS)
def test_any_history_is_shown_or_refused(by: str, events: list[list[Any]]) -> None:
    # As JSON of somebody else may be: with escapes, also of half a character.
    data = b"h1j" + json.dumps([[7, 1_700_000_000_000, by, events]]).encode()
    told = Events()
    try:
        for event in told.of(history.records_from_bytes(SPAN, data, 0)):
            json.dumps(asdict(event), ensure_ascii=False).encode()
    except PayloadUndecodable:
        return
    assert list(timeline(told.state))
    assert told.state.has_ended in (True, False)


class _Unpacked:
    """A file of one line, as `open_archive` would have unpacked it."""

    def __init__(self, *lines: bytes) -> None:
        self._lines = list(lines)

    def readline(self, most: int) -> bytes:
        return self._lines.pop(0)[:most] if self._lines else b""


@given(BODIES, BODIES)
def test_a_line_of_an_archive_is_a_record_or_refused(header: bytes, line: bytes) -> None:
    from zkplan.author.export_file import _Lines

    lines = _Lines(Path("file"), _Unpacked(header + b"\n", line + b"\n"))
    try:
        assert isinstance(lines.header(), Header)
    except PayloadUndecodable:
        pass
    with pytest.raises(PayloadUndecodable):
        list(lines.items())
