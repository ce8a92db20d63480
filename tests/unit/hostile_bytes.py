"""Bytes and names that somebody hostile leaves in znodes: near to real ones, and far from them."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st

from zkplan.protocol.core.edges import Edge
from zkplan.protocol.core.workers import WorkerRecord
from zkplan.protocol.records import Dead, Failure, PlanRecord, TaskRecord
from zkplan.protocol.task_options import TaskOptions
from zkplan.values import codec as codecs
from zkplan.values import function_codec as functions
from zkplan.values.codec import FAILURE, LOG, TASK, VALUE, Codec

T = TypeVar("T")
KINDS = (TASK, VALUE, FAILURE, LOG)
KEYS = (
    *("name", "uid", "created", "defaults", "on_failure", "format", "attempts", "retry_delay"),
    *("timeout", "priority", "keep", "dep", "k", "entry", "kind", "message", "traceback", "state"),
    *("worker", "n", "when", "rank", "a", "error", "host", "pid", "slots", "started", "exception"),
)
#: Spelled by hand, because json.dumps writes none of them.
TOKENS = (
    *("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" * 400, "9" * 5000, "-0", "00", "1.0"),
    *(
        '"\\ud800"',
        '"\\udfff\\ud800"',
        '"\\u0000"',
        '"٣٣٣٣"',
        "true",
        "null",
        "{}",
        "[]",
        '"task-"',
    ),
    *('"5000-0000000001"', '"task-0000000001/dep-0000000000"', "2147483648", "-1", "1e11", "-1e11"),
    *("[" * depth + "]" * depth for depth in (50, 300, 990, 5000)),
    *('{"a":' * depth + "1" + "}" * depth for depth in (50, 300, 990, 5000)),
)
_RECORDS: tuple[bytes, ...] = (
    PlanRecord("plan", "uid", 1.5, TaskOptions(attempts=5, timeout=2.0), "cascade").to_bytes(),
    TaskOptions("name", 2, 0.5, 10.0, -5, True).to_json(),
    TaskRecord(2, b"{}", b"Rbuiltins:len", codecs.dump(((), {}))).to_bytes(),
    Edge("0000000001", "0000000002", 3, "5000").to_bytes(),
    Failure("ValueError", "text", "trace", "worker", 3, 1.5, pickle.dumps(ValueError())).to_bytes(),
    Dead("5000", 3, 2, "name", "error", "worker").to_bytes(),
    WorkerRecord("w", "host", 5, 8, 1.5).to_bytes(),
    b'{"state":"running"}',
    b"0000000001 0000000002 3 5000\n0000000001 0000000003 1 4990",
    b"5000.2",
    codecs.dump([1, "two", {"three": (4.0, None)}]),
    codecs.dump(lambda: 1),
    functions.dump_function(lambda: 1),
)


def _one_of(choices: Sequence[T]) -> st.SearchStrategy[T]:
    """As `sampled_from`, but hypothesis does not write all the choices into its messages."""
    return st.integers(0, len(choices) - 1).map(lambda at: choices[at])


def _object(pairs: list[tuple[str, str]]) -> bytes:
    # Written by hand, so that a key may stand there twice.
    return ("{" + ",".join(f'"{key}":{value}' for key, value in pairs) + "}").encode()


def _mangled(parts: tuple[bytes, int, int, bytes]) -> bytes:
    whole, start, length, put = parts
    start %= len(whole) + 1
    return whole[:start] + put + whole[start + length :]


OBJECTS = st.lists(st.tuples(st.sampled_from(KEYS), _one_of(TOKENS)), max_size=6).map(_object)
MANGLED = st.tuples(
    _one_of(_RECORDS), st.integers(0, 400), st.integers(0, 50), st.binary(max_size=8)
).map(_mangled)
FRAMED = st.tuples(st.integers(0, 2**32 - 1) | st.integers(0, 200), OBJECTS | MANGLED).map(
    lambda parts: struct.pack(">I", parts[0]) + parts[1]
) | OBJECTS.map(lambda data: struct.pack(">I", len(data)) + data)
HEADED = st.tuples(*[st.integers(0, 300) | st.integers(0, 2**32 - 1)] * 3, MANGLED).map(
    lambda parts: struct.pack(">III", *parts[:3]) + parts[3]
)
BODIES = (
    st.binary(max_size=80)
    | OBJECTS
    | MANGLED
    | FRAMED
    | HEADED
    | _one_of(TOKENS).map(str.encode)
    | st.text(max_size=30).map(lambda text: text.encode("utf-16", "surrogatepass"))
)
#: Without opcodes that ask for a memo of any size: Python reserves what is asked for, gigabytes.
#: Where keys are used, only who holds one can have them read.
PICKLES = BODIES.filter(lambda data: not {b"r", b"p"} & {bytes([c]) for c in data})


def _sealed(parts: tuple[bytes, bytes, bytes, int]) -> bytes:
    changed, kind, body, cut = parts
    sealed = bytearray(Codec().seal(kind, body))
    sealed[3 : 3 + len(changed)] = changed
    return bytes(sealed[: len(sealed) - cut])


#: Envelopes that are none, or with another digest, or cut short.
ENVELOPES = BODIES | st.tuples(
    st.sampled_from([b"", b"theirs"]), st.sampled_from(KINDS), BODIES, st.integers(0, 40)
).map(_sealed)

#: Close to real names: their characters, and digits of other scripts.
NAMES = (
    st.text("0159-.x/\n٣²", max_size=45)
    | st.text(max_size=45)
    | st.from_regex(r"[0-9]{4}-[0-9]{10}\.[0-9]{1,12}\.[0-9]{1,12}", fullmatch=True)
    | st.from_regex(r"\d{10}-\d{10}\.\d{1,12}\.[^/]{0,9}", fullmatch=True)
    | st.from_regex(r"[0-9]{13}-\d{10}-\d{4}-\d{10}\.\d{1,3}\.\d{1,3}", fullmatch=True)
    | st.from_regex(r"(plan|task)-\d{9,11}", fullmatch=True)
    | _one_of(("9" * 5000, "5000-0000000001." + "9" * 5000 + ".0", "-" * 1_000_000))
)

#: A megabyte, the most that a znode holds.
MEGABYTE = 1_000_000
HUGE: dict[str, bytes] = {
    "zeros": bytes(MEGABYTE),
    "digits": b"9" * MEGABYTE,
    "lists": b"[" * MEGABYTE,
    "objects": b'{"a":' * (MEGABYTE // 5),
    "closed lists": b"[" * (MEGABYTE // 2) + b"]" * (MEGABYTE // 2),
    "deep defaults": b'{"defaults":' + b"[" * 400_000 + b"]" * 400_000 + b"}",
    "numbers": b"[" + b"0," * (MEGABYTE // 2) + b"0]",
    "text": json.dumps({"name": "x" * MEGABYTE}).encode(),
    "format": json.dumps({"format": "x" * MEGABYTE}).encode(),
    "twins": b"{" + b'"name":"x",' * (MEGABYTE // 11) + b'"name":"y"}',
    "lines": b"\n" * MEGABYTE,
    "pending records": b"0000000001 0000000002 3 5000\n" * (MEGABYTE // 29),
    "length": struct.pack(">I", 2**32 - 1) + b"{}",
    "lengths": struct.pack(">III", *[2**32 - 1] * 3),
    "sealed": Codec().seal(VALUE, bytes(MEGABYTE)),
}


def as_text(data: Any) -> str:
    """Bytes as the name that a znode might have."""
    return data if isinstance(data, str) else data.decode(errors="replace")
