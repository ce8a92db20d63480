"""Values and functions are serialised to sealed bytes and read back; damage is always noticed."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import io
import math
import pickle
import queue
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zkplan.errors import NotSerialisable, PayloadUndecodable
from zkplan.protocol.records import Serializer
from zkplan.values import codec as codecs
from zkplan.values import function_codec as functions
from zkplan.values.codec import FAILURE, TASK, VALUE, Codec

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=4)
    ),
    max_leaves=15,
)


class Point:
    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and other.x == self.x

    __hash__ = None  # type: ignore[assignment]


class Mark:
    """Stands for a task in these tests."""

    def __init__(self, place: int) -> None:
        self.place = place


def place_of(value: Any) -> int | None:
    return value.place if type(value) is Mark else None


@given(PLAIN)
def test_plain_values_are_serialised_without_dill(value: Any) -> None:
    blob = codecs.dump(value)
    assert blob[:1] == b"P"
    assert codecs.load(blob) == value


@pytest.mark.parametrize(
    "value",
    [Point(3), {"deep": [Point(1)]}, OrderedDict(a=1), ValueError("x"), math.sqrt, Point, {1, 2}],
    ids=repr,
)
def test_values_of_classes_survive(value: Any) -> None:
    found = codecs.load(codecs.dump(value))
    if isinstance(value, ValueError):
        assert (type(found), found.args) == (ValueError, ("x",))
    else:
        assert found == value


@given(PLAIN, PLAIN)
def test_marks_at_any_depth_are_replaced_by_values(first: Any, second: Any) -> None:
    args = [Mark(0), [Mark(1), {"k": (Mark(0), Point(1))}], 5]
    blob = codecs.dump_call(args, {"named": Mark(1)}, place_of)
    args, kwargs = codecs.load(blob, [first, second])
    assert args == (first, [second, {"k": (first, Point(1))}], 5)
    assert kwargs == {"named": second}


def test_a_mark_without_a_value_is_undecodable() -> None:
    assert codecs.load(codecs.dump_call([b"no mark"], {}, place_of), ["unused"]) == (
        (b"no mark",),
        {},
    )
    with pytest.raises(PayloadUndecodable, match=r"^IndexError"):
        codecs.load(codecs.dump([Mark(5)], place_of), ["only one"])


@given(PLAIN, st.data())
def test_a_single_changed_byte_is_noticed(value: Any, data: st.DataObject) -> None:
    codec = Codec()
    sealed = bytearray(codec.seal_value(value))
    at = data.draw(st.integers(0, len(sealed) - 1))
    sealed[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(PayloadUndecodable):
        codec.open(VALUE, bytes(sealed))


def test_data_sealed_with_a_key_has_no_digest_and_every_digest_is_checked() -> None:
    plain, keyed = Codec(), Codec(has_keys=True)
    sealed = keyed.seal_value([1])
    assert sealed[:19] == b"e3V" + b"\x00\xff" * 8
    assert plain.open(VALUE, sealed) == keyed.open(VALUE, sealed)
    with pytest.raises(PayloadUndecodable, match="damaged"):
        keyed.open(VALUE, plain.seal_value([1])[:-1] + b"?")


@given(st.binary(max_size=100))
def test_garbage_is_refused_by_the_codec(data: bytes) -> None:
    with pytest.raises(PayloadUndecodable):
        Codec().open(VALUE + FAILURE + TASK, data)
    with pytest.raises(PayloadUndecodable):
        functions.load_function(data)


def has_unknown_encoding(blob: bytes) -> bool:
    """A name, a skip or a trace may stand before the letter of the encoding."""
    encoding = functions.split_name(blob)[1][:1]
    return not encoding or encoding not in b"PCDJE"


@given(st.binary(max_size=60).filter(has_unknown_encoding))
@example(b"N\x00\x01x?")
def test_an_unknown_encoding_is_reported_as_of_a_newer_zkplan(blob: bytes) -> None:
    with pytest.raises(PayloadUndecodable, match="newer zkplan"):
        codecs.load(blob)


def test_the_sealed_none_is_made_only_once() -> None:
    codec = Codec()
    assert codec.seal_value(None) is codec.seal_value(None)


def test_importable_functions_travel_by_reference_and_others_by_value() -> None:
    offset = 5
    assert functions.dump_function(math.sqrt) == b"Rmath:sqrt"
    assert functions.dump_function(Point) == f"R{__name__}:Point".encode()
    by_value = functions.dump_function(lambda x: x + offset)
    name, blob = functions.split_name(by_value)
    assert (name.rpartition(".")[2], blob[:1]) == ("<lambda>", b"F")
    assert functions.load_function(by_value)(1) == 6
    assert functions.load_function(b"Rmath:sqrt") is math.sqrt
    assert functions.describe_function(b"Rmath:sqrt") == "math.sqrt"
    assert functions.describe_function(by_value).endswith("<lambda> (by value)")


def test_a_task_is_named_by_its_function_wherever_the_function_is_defined() -> None:
    def within() -> None: ...

    strange = lambda: None  # noqa: E731
    strange.__qualname__ = "two\nlines" * 30
    for function, name in (
        (math.sqrt, "sqrt"),
        (Point.__init__, "Point.__init__"),
        (within, within.__qualname__),
        (functools.partial(functools.partial(within)), within.__qualname__),
        (strange, ("two?lines" * 30)[:200]),
    ):
        blob = functions.dump_function(function)
        assert functions.name_of_function(blob) == functions.function_name(function) == name


@pytest.mark.parametrize("blob", [b"N", b"N\x00", b"N\xff\xff", b"N\x00\x03ab", b"N\x00\x01\xff"])
def test_a_truncated_name_is_refused_as_a_value_and_as_a_function(blob: bytes) -> None:
    with pytest.raises(PayloadUndecodable):
        codecs.load(blob)
    with pytest.raises(PayloadUndecodable):
        functions.load_function(blob)


def test_a_function_by_value_refers_to_the_modules_it_uses() -> None:
    """Copies of whole modules would be huge, and would not be the modules."""
    import zkplan

    blob = functions.dump_function(lambda: (zkplan, math, threading))
    assert len(blob) < 1000
    assert functions.load_function(blob)() == (zkplan, math, threading)


def test_functions_that_call_each_other_or_themselves_travel_by_value() -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    source = """
def even(n): return n == 0 or odd(n - 1)
def odd(n): return n != 0 and even(n - 1)
"""
    exec(source, space)
    even = functions.load_function(functions.dump_function(space["even"]))
    assert even(10) is True
    assert even(7) is False

    def fibonacci(n: int) -> int:
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    assert functions.load_function(functions.dump_function(fibonacci))(12) == 144


@pytest.mark.parametrize(
    "blob",
    [b"Rno_such_module:f", b"Rmath:no_such", b"Rmath:pi", b"Rmath", b"R", b"F", b"F\x02\x07x"],
)
def test_a_function_that_cannot_be_found_here_is_undecodable(blob: bytes) -> None:
    with pytest.raises(PayloadUndecodable):
        functions.load_function(blob)


def test_a_decoded_function_is_cached_by_its_bytes() -> None:
    codec = Codec()
    blob = functions.dump_function(lambda: 1)
    assert codec.function(blob) is codec.function(blob)
    other = functions.dump_function(lambda: 2)
    assert (codec.function(blob)(), codec.function(other)()) == (1, 2)
    for number in range(codecs.FUNCTIONS_CACHED + 1):
        codec.function(f"Rmath:{('sin', 'cos')[number % 2]}".encode())
    assert codec.function(blob)() == 1


def test_threads_do_not_see_each_others_arguments() -> None:
    blob = codecs.dump_call([Mark(0)], {}, place_of)

    def found(value: int) -> list[Any]:
        return [codecs.load(blob, [value]) for _ in range(300)]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(found, range(4))) == [[((value,), {})] * 300 for value in range(4)]


@pytest.mark.parametrize("mode", ["r", "w", "a", "r+", "rb", "wb", "r+b"])
def test_an_open_file_is_refused_and_left_unchanged(tmp_path: Path, mode: str) -> None:
    """dill would open it in the worker, and with `w` empty it."""
    path = tmp_path / "journal"
    path.write_text("written by the author\n")
    with path.open(mode) as file:
        if "w" in mode:
            file.write("more" if mode == "w" else b"more")
        with pytest.raises(TypeError, match="pass its path and open it in the function"):
            codecs.dump_call([file], {}, place_of)
        with pytest.raises(TypeError, match="pass its path"):
            functions.dump_function(lambda: file.name)
        with pytest.raises(NotSerialisable, match="pass its path"):
            Codec().seal_value({"deep": [file]})
    assert path.read_text() == ("more" if "w" in mode else "written by the author\n")
    assert codecs.load(codecs.dump(file)).closed


class Held:
    def __init__(self) -> None:
        self.event = threading.Event()

    def __call__(self) -> None:
        self.event.set()


class Without(Held):
    def __getstate__(self) -> dict[str, Any]:
        return {}


class MyThread(threading.Thread):
    pass


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (Future, "Future would never change, as it lives in one process: pass its result"),
        (lambda: {"deep": [Future()]}, "pass its result"),
        (asyncio.Event, "asyncio.locks.Event"),
        (threading.Event, "tasks share no memory"),
        (threading.BoundedSemaphore, "tasks share no memory"),
        (threading.Condition, "tasks share no memory"),
        (queue.PriorityQueue, "queue.PriorityQueue"),
        (queue.SimpleQueue, "tasks share no memory"),
        (MyThread, "MyThread would never change, as it lives in one process: pass what it works"),
        (lambda: subprocess.Popen(["true"], stdin=subprocess.DEVNULL), "pass what it works on"),
        (Held, "can leave it out in __getstate__"),
    ],
)
def test_objects_bound_to_a_process_are_refused_anywhere_in_calls_and_results(
    make: Callable[[], Any], told: str
) -> None:
    """A task that waits for a copy of it waits for ever."""
    live = make()
    with pytest.raises(TypeError, match=told):
        codecs.dump_call([live], {}, place_of)
    with pytest.raises(TypeError, match=told):
        functions.dump_function(lambda: live)
    with pytest.raises(NotSerialisable, match=told):
        Codec().seal_value(live)
    if isinstance(live, subprocess.Popen):
        live.wait()


def test_an_object_that_omits_its_process_bound_parts_travels() -> None:
    assert vars(codecs.load(codecs.dump([Without()]))[0]) == {}


def test_the_standard_streams_and_text_in_memory_travel() -> None:
    stream = sys.__stderr__
    copy = codecs.load(codecs.dump([stream, io.StringIO("text")]))
    assert copy[0] is stream
    assert copy[1].getvalue() == "text"


def test_a_held_lock_arrives_released() -> None:
    lock = threading.Lock()
    with lock:
        blob, function = codecs.dump([lock]), functions.dump_function(lambda: lock)
    for copy in (codecs.load(blob)[0], functions.load_function(function)()):
        assert copy is not lock
        assert not copy.locked()


class Buffered:
    """As the values of pyarrow and pandas: its data are buffers, which a pickler may copy."""

    def __init__(self, data: bytes | bytearray) -> None:
        self.data = data

    def __reduce__(self) -> Any:
        return Buffered, (pickle.PickleBuffer(self.data),)


@pytest.mark.parametrize("data", [b"", b"x", bytearray(), bytearray(b"x")])
def test_an_empty_buffer_does_not_change_neighbouring_bytes(data: bytes | bytearray) -> None:
    blob = codecs.dump([Buffered(data), b"", bytearray(), lambda: 1])
    first, second, third, _ = codecs.load(blob)
    assert (type(first.data), first.data) == (type(data), data)
    assert (type(second), type(third)) == (bytes, bytearray)


def test_importable_objects_are_pickled_by_the_c_pickler() -> None:
    value = [OrderedDict(a=1), OSError(2, "gone"), len, dataclasses.MISSING]
    assert codecs.dump(value)[:1] == b"C"
    assert codecs.load(codecs.dump(value))[3] is dataclasses.MISSING
    assert codecs.dump([*value, lambda: 1])[:1] == b"D"


@pytest.mark.parametrize("serializer", [codecs.PICKLE, codecs.JSON_ONLY])
@pytest.mark.parametrize("name", ["", "its task"])
def test_a_span_before_a_value_changes_neither_the_value_nor_its_name(
    serializer: Serializer, name: str
) -> None:
    codec, span = Codec(serializer), f"00-{'a' * 52}"
    plain = codec.seal_value([1, "two"], name)
    body = codec.open(VALUE, codec.seal_traced(plain, span))[1]
    assert codec.load(body) == [1, "two"]
    assert (functions.split_name(body)[0], functions.trace_of(body)) == (name, span)
    assert functions.trace_of(codec.open(VALUE, plain)[1]) == ""
