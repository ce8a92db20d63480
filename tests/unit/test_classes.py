"""Classes defined in `__main__` go to another process and come back as themselves."""

from __future__ import annotations

import abc
import dataclasses
import enum
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from zkplan.values import codec
from zkplan.values.function_codec import load_function

TOP = Path(__file__).parents[2]
SOURCE = '''
import abc, dataclasses, enum, functools, typing

LIMIT = 10
T = typing.TypeVar("T")

class Colour(enum.Enum):
    """A colour."""
    RED = 1
    GREEN = "g"
    CRIMSON = 1

    def louder(self):
        return self.name.upper() + "!"

class Level(enum.IntFlag):
    LOW = 1
    HIGH = 2

@dataclasses.dataclass
class Point:
    x: int
    y: int = 0
    tags: list = dataclasses.field(default_factory=list)

    def moved(self, by):
        return dataclasses.replace(self, x=self.x + by + LIMIT)

@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    a: int
    b: int = 2

class Far(Point):
    def moved(self, by):
        return super().moved(by * 100)

    @property
    def double(self):
        return 2 * self.x

    @classmethod
    def origin(cls):
        return cls(0, 0)

    @staticmethod
    def name():
        return "far"

class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...

class Square(Shape):
    def __init__(self, side): self.side = side
    def area(self): return self.side ** 2

class Box(typing.Generic[T]):
    def __init__(self, inside: T): self.inside = inside

class Pair(typing.NamedTuple):
    left: int
    right: str = "r"

class Node:
    """Refers to itself by its name."""
    def __init__(self, *children): self.children = children
    def count(self): return 1 + sum(child.count() for child in self.children)
    def grown(self): return Node(self)
    @functools.cached_property
    def size(self): return self.count()

class Broken(Exception):
    def __init__(self, code):
        super().__init__(f"code {code}")
        self.code = code
    def __reduce__(self):
        return Broken, (self.code,)
'''

OTHER = """
import sys
from zkplan.values import codec
value, function = codec.load(sys.stdin.buffer.read())
sys.stdout.buffer.write(codec.dump(function(value)))
"""


@pytest.fixture(scope="module")
def main() -> dict[str, Any]:
    """What the source defines, as if it were a script."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(SOURCE, space)
    return space


def run(code: str, payload: bytes) -> bytes:
    """What the code prints in another process that reads the payload."""
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, input=payload, capture_output=True, cwd=TOP, check=False)
    assert ran.returncode == 0, ran.stderr.decode()
    return ran.stdout


def elsewhere(value: Any, function: Any) -> Any:
    """What `function(value)` is in another process."""
    return codec.load(run(OTHER, codec.dump((value, function))))


def test_objects_come_back_as_objects_of_their_own_class(main: dict[str, Any]) -> None:
    point = main["Point"](1, 2)
    moved = elsewhere(point, lambda p: p.moved(1))
    assert type(moved) is main["Point"]
    assert moved == main["Point"](12, 2)
    assert elsewhere(point, lambda p: type(p)) is main["Point"]


def test_data_classes_keep_their_fields(main: dict[str, Any]) -> None:
    def look(pair: Any) -> Any:
        import dataclasses

        point, slotted = pair
        return (
            [field.name for field in dataclasses.fields(point)],
            dataclasses.asdict(type(point)(5)),
            dataclasses.asdict(slotted),
            hasattr(slotted, "__dict__"),
        )

    assert elsewhere((main["Point"](1), main["Slotted"](1)), look) == (
        ["x", "y", "tags"],
        {"x": 5, "y": 0, "tags": []},
        {"a": 1, "b": 2},
        False,
    )


def test_subclasses_keep_their_methods_and_bases(main: dict[str, Any]) -> None:
    far, double, origin, name = elsewhere(
        main["Far"](1), lambda far: (far.moved(2), far.double, type(far).origin(), far.name())
    )
    assert (type(far), far.x, double, name) == (main["Far"], 211, 2, "far")
    assert isinstance(origin, main["Point"])


def test_enumerations_come_back_as_their_members(main: dict[str, Any]) -> None:
    colour, level = main["Colour"], main["Level"]
    found = elsewhere(
        [colour.RED, colour.GREEN, level.LOW],
        lambda given: [
            given[0],
            given[1].louder(),
            members_of(given[0]),
            type(given[0]).CRIMSON,
            type(given[2]).HIGH | given[2],
        ],
    )
    red, louder, members, crimson, both = found
    assert red is colour.RED is crimson
    assert louder == "GREEN!"
    assert members == [colour.RED, colour.GREEN]
    assert both == level.LOW | level.HIGH
    assert type(both) is level


def members_of(member: Any) -> list[Any]:
    return list(member.__class__)


def test_abstract_generic_and_tuple_classes_travel(main: dict[str, Any]) -> None:
    def use(given: Any) -> Any:
        square, box, pair = given
        return square.area(), type(box)(box.inside * 2), type(pair)(pair.left + 1), square

    area, box, pair, square = elsewhere((main["Square"](3), main["Box"]("x"), main["Pair"](1)), use)
    assert (area, box.inside, pair) == (9, "xx", main["Pair"](2, "r"))
    assert isinstance(square, main["Shape"])
    assert isinstance(box, main["Box"])
    with pytest.raises(TypeError, match="abstract"):
        main["Shape"]()


def test_a_class_may_refer_to_itself(main: dict[str, Any]) -> None:
    node = main["Node"](main["Node"](), main["Node"]())
    grown, size = elsewhere(node, lambda n: (n.grown(), n.size))
    assert (type(grown), grown.count(), size) == (main["Node"], 4, 3)


def test_an_exception_class_can_be_caught_by_its_author(main: dict[str, Any]) -> None:
    def fail(kind: Any) -> Any:
        try:
            raise kind(7)
        except kind as error:
            return error

    error = elsewhere(main["Broken"], fail)
    with pytest.raises(main["Broken"]) as caught:
        raise error
    assert caught.value.code == 7


def test_a_class_defined_in_a_function_travels() -> None:
    class Local:
        def __init__(self, x: int) -> None:
            self.x = x

    found = elsewhere(Local(1), lambda local: type(local)(local.x + 1))
    assert type(found) is Local
    assert found.x == 2


def test_all_tasks_of_a_process_share_one_class(main: dict[str, Any]) -> None:
    """Two payloads carry it, and both give the same class."""
    code = (
        "import sys, pickle; from zkplan.values import codec; "
        "a, b = map(codec.load, pickle.loads(sys.stdin.buffer.read())); "
        "assert type(a) is type(b) and a != b and isinstance(a, type(b)), (type(a), type(b))"
    )
    run(code, pickle.dumps([codec.dump(main["Point"](x)) for x in (1, 2)]))


def test_threads_that_load_a_class_at_once_get_the_complete_class(main: dict[str, Any]) -> None:
    code = """
import sys, threading
from zkplan.values import codec
blob = sys.stdin.buffer.read()
wrong, start = [], threading.Barrier(8)
def work():
    start.wait()
    try:
        if codec.load(blob).moved(1).x != 12:
            wrong.append("value")
    except Exception as error:
        wrong.append(repr(error))
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not wrong, wrong
"""
    run(code, codec.dump(main["Point"](1)))


SCRIPT = """
from __future__ import annotations
import dataclasses, sys, typing
from zkplan.values.function_codec import dump_function

T = typing.TypeVar("T")
P = typing.ParamSpec("P")
UserId = typing.NewType("UserId", int)

class Row(typing.TypedDict):
    user: UserId

class Wide(Row, total=False):
    name: str

class Of(typing.TypedDict, typing.Generic[T]):
    value: T

class Pair(typing.NamedTuple):
    left: UserId

@dataclasses.dataclass
class Node:
    row: Row
    next: Node | None = None
    never: Unseen | None = None

def use(row: Row, call: typing.Callable[P, T], generic: Of[int]) -> UserId:
    hints = [typing.get_type_hints(kind) for kind in (Row, Wide, Of, Pair)]
    keys = sorted(Wide.__required_keys__), sorted(Wide.__optional_keys__)
    names = [sorted(hint) for hint in hints]
    is_one = hints[0]["user"] is UserId and hints[3]["left"] is UserId
    return UserId(Wide(user=3)["user"]), names, keys, is_one, Node(Row(user=1)).next, P.__name__

Node.__annotations__.pop(sys.argv[1], None)
sys.stdout.buffer.write(dump_function(lambda: (use(1, 2, 3), typing.get_type_hints(Node)["next"])))
"""


def by_script(*arguments: str) -> bytes:
    """What the script prints; it is `__main__` there."""
    command = [sys.executable, "-c", SCRIPT, *arguments]
    return subprocess.run(command, cwd=TOP, stdout=subprocess.PIPE, check=True).stdout


def test_the_names_used_in_annotations_travel_with_their_classes() -> None:
    found, hint = load_function(by_script("never"))()
    names = [["user"], ["name", "user"], ["value"], ["left"]]
    assert found == (3, names, (["user"], ["name"]), True, None, "P")
    assert str(hint) == "__main__.Node | None"


def test_a_class_travels_even_if_a_name_in_its_annotations_is_undefined() -> None:
    assert callable(load_function(by_script("nothing")))


def test_a_class_that_no_worker_could_rebuild_is_refused_at_submission() -> None:
    class Base:
        def __init_subclass__(cls, *, tag: str) -> None: ...

    class Tagged(Base, tag="x"): ...

    class Meta(type):
        def __new__(cls, name: str, bases: Any, space: Any, *, size: int) -> Any:
            return super().__new__(cls, name, bases, space)

        def __init__(cls, name: str, bases: Any, space: Any, *, size: int) -> None: ...

    class Sized(metaclass=Meta, size=1): ...

    for kind, told in ((Tagged, "'tag'"), (Sized, "'size'")):
        with pytest.raises(TypeError, match=rf"made with keywords.*{told}"):
            codec.dump(kind)


def test_an_object_pickled_by_a_name_of_main_is_refused_at_submission() -> None:
    class Missing:
        __module__ = "__main__"

        def __reduce__(self) -> str:
            return "MISSING"

    with pytest.raises(pickle.PicklingError, match="MISSING of __main__ is pickled by name"):
        codec.dump(Missing())


def test_classes_that_can_be_imported_travel_by_reference() -> None:
    for kind in (Path, threading.Thread, enum.Enum, abc.ABC, dataclasses.Field):
        assert len(codec.dump(kind)) < 200
        assert codec.load(codec.dump(kind)) is kind
