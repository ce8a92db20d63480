"""`zkplan.when`: which conditions it refuses, and which znodes fulfil a condition."""

from __future__ import annotations

import os
from typing import Any

import pytest

from zkplan.errors import InvalidTask, PayloadUndecodable
from zkplan.gates import argument, opened_condition, passed, sealed_condition, when
from zkplan.protocol.features.gates import Condition, Seen
from zkplan.protocol.requests import Check, Node
from zkplan.values.codec import VALUE, Codec, load


def znode(data: bytes, version: int = 3) -> Seen:
    return Seen(Node(data, version, 0, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("path", "options", "said"),
    [
        ("deploy", {}, "not the path"),
        ("/deploy/", {}, "not the path"),
        ("/a//b", {}, "not the path"),
        ("/a/../b", {}, "not the path"),
        (7, {}, "not the path"),
        ("/a", {"exists": True, "value": b""}, "two conditions"),
        ("/a", {"value": 3}, "bytes or a text"),
        ("/a", {"children": 0}, "children must be 1 to"),
        ("/a", {"children": True}, "children must be 1 to"),
        ("/a", {"timeout": 0}, "timeout must be more than 0 seconds"),
        ("/a", {"timeout": "5"}, "timeout must be more than 0 seconds"),
    ],
)
def test_an_invalid_condition_is_refused(path: Any, options: Any, said: str) -> None:
    with pytest.raises(InvalidTask, match=said):
        when(path, **options)


def test_a_condition_is_evaluated_and_becomes_a_check_that_zookeeper_can_make() -> None:
    gone, here = Seen(None), znode(b"x")
    cases = [
        (when("/a"), [False, True], [Check("/a", 3)]),
        (when("/a", exists=False), [True, False], []),
        (when("/a", absent=True), [True, False], []),
        (when("/a", value=b"x"), [False, True], [Check("/a", 3)]),
        (when("/a", value="y"), [False, False], [Check("/a", 3)]),
    ]
    for gate, fits, guard in cases:
        assert [gone.fits(gate.condition), here.fits(gate.condition)] == fits
        assert here.guard(gate.condition) == guard
    two = when("/a", children=2).condition
    assert [here._replace(names=names).fits(two) for names in (["b"], ["b", "c"])] == [False, True]
    assert here.guard(two) == [Check("/a", -1)]


def test_a_condition_is_sealed_and_nothing_else_is_opened_as_a_condition() -> None:
    condition = Condition("/a", "value", b"\xff", timeout=1.5, take=False)
    codec = Codec()
    sealed = sealed_condition(codec, condition)
    assert opened_condition(codec, sealed) == condition
    for data in (sealed[:-1], codec.seal(VALUE, sealed), b"", os.urandom(40)):
        with pytest.raises(PayloadUndecodable):
            opened_condition(codec, data)


def test_a_value_that_is_too_large_fails_the_gate_with_its_size() -> None:
    codec = Codec()
    condition = when("/a").condition
    large = argument(codec, condition, znode(b"x" * 600_000))
    with pytest.raises(InvalidTask, match="znode /a holds 600000 bytes, and a gate hands on"):
        passed(load(codec.open(VALUE, large)[1]))
    # A task that only waits for the gate takes no value.
    assert argument(codec, condition._replace(take=False), znode(b"x" * 600_000)) == codec.none
