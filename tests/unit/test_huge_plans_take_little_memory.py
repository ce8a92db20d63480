"""The memory that a worker needs for a very long listing stays small beside the listing itself."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from zkplan.protocol.core.plans_and_queues import PlanLook
from zkplan.protocol.features.plan_check import Report, check
from zkplan.protocol.layout import Paths
from zkplan.protocol.requests import Node, ReadChildren, ReadData, ReadMany, Request
from zkplan.runtime import plan_entries as listings
from zkplan.runtime.plan_entries import CANDIDATES_MAX, first_of
from zkplan.runtime.plan_view import STEAL_AFTER_S, STRANGE_MAX, PlanView
from zkplan.transport.packets import LONG_LIST, LongList, unpack_names
from zkplan.transport.transport import run_step

from .listings import names, running, view

#: As lists of str, these names alone would take 16 MB.
MANY = 200_000
LITTLE_BYTES = 10_000_000
#: A check reads each task, so it gets fewer: as lists and sets of str, they would take 20 MB.
CHECKED, CHECK_BYTES = 60_000, 4_000_000
SHARE = (1, 2)


def packed(texts: Sequence[str]) -> bytes:
    encoded = [text.encode() for text in texts]
    parts = (struct.pack("!i", len(text)) + text for text in encoded)
    return struct.pack("!i", len(encoded)) + b"".join(parts)


@pytest.fixture(scope="module")
def listing() -> Sequence[str]:
    found = names(*range(MANY))
    random.Random(1).shuffle(found)
    return unpack_names(packed(found), 0)[0]


@contextmanager
def little_memory(most: int = LITTLE_BYTES) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most


def with_strange_names(seen: PlanView) -> None:
    seen.strange.update(names(1, 2))


def with_more_strange_names_than_are_remembered(seen: PlanView) -> None:
    seen.strange.update(map(str, range(STRANGE_MAX)))


def with_a_task_that_cannot_run_here(seen: PlanView) -> None:
    seen.left.add("0000000001")


@pytest.mark.parametrize(
    "prepare",
    [
        lambda seen: None,
        with_strange_names,
        pytest.param(with_more_strange_names_than_are_remembered, marks=pytest.mark.slow),
        pytest.param(with_a_task_that_cannot_run_here, marks=pytest.mark.slow),
    ],
)
def test_only_the_next_entries_of_a_huge_listing_are_held(
    listing: Sequence[str], prepare: Callable[[PlanView], None]
) -> None:
    seen = view()
    prepare(seen)
    with little_memory():
        seen.update(PlanLook("running", 0, listing), SHARE, 100.0)
    left_out = {name[5:15] for name in seen.strange} | seen.left.tasks
    wanted = [name for name in names(*range(1, MANY, 2)) if name[5:15] not in left_out]
    assert list(seen.own) == wanted[:CANDIDATES_MAX]


@pytest.mark.slow
def test_the_last_entries_of_a_huge_listing_of_others_are_taken(listing: Sequence[str]) -> None:
    seen = view()
    others = (MANY, MANY + 1)  # no task number falls to this share
    with little_memory():
        seen.update(PlanLook("running", 0, listing), others, 100.0)
        assert not seen.own
        seen.update(PlanLook("running", 0, listing), others, 100.0 + STEAL_AFTER_S)
    assert list(seen.own) == names(*range(MANY - CANDIDATES_MAX, MANY))


@pytest.mark.parametrize(
    "odd", ["x", "ä" * 40, "y" * 127, "y" * 128, "y" * 400, "y" * 70_000, "5000-0000000001.10.2"]
)
def test_long_lists_are_decoded_like_short_ones(odd: str) -> None:
    texts = [*names(*range(2 * LONG_LIST)), odd, *names(7, 8), odd]
    body = b"before" + packed(texts)
    found, end = unpack_names(body + b"after", 6)
    assert isinstance(found, LongList)
    assert (list(found), len(found), end) == (texts, len(texts), len(body))
    assert list(unpack_names(packed(texts[-4:]), 0)[0]) == texts[-4:]


@pytest.mark.parametrize("last", [[], ["x"], ["y" * 17], ["x", "y" * 35]])
def test_long_lists_of_names_of_equal_and_mixed_lengths_are_decoded(last: list[str]) -> None:
    texts = [*names(*range(2 * LONG_LIST)), *last]
    body = packed(texts)
    found, end = unpack_names(body + b"after", 0)
    assert (list(found), len(found), end) == (texts, len(texts), len(body))


def test_a_sorted_and_a_shuffled_listing_give_the_same_candidates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listings, "_BATCH", 64)  # several, also of so few
    sorted_names = names(*range(1000))
    shuffled = random.Random(1).sample(sorted_names, 1000)
    for reverse in (False, True):
        wanted = sorted(sorted_names[1::2], reverse=reverse)[:10]
        for found in (sorted_names, sorted_names[::-1], shuffled):
            odd = set(sorted_names[1::2]).__contains__
            assert first_of(found, 10, reverse=reverse, keep=odd) == wanted


@pytest.mark.slow
def test_checking_a_huge_plan_holds_no_list_of_its_tasks() -> None:
    found = ["ready", *(f"task-{number:010d}" for number in range(CHECKED))]
    tasks = unpack_names(packed(found), 0)[0]
    runnable = unpack_names(packed(names(*range(CHECKED))), 0)[0]
    ready = Node(b"0", 1, 0, 0, 0, 0, 0)

    def read(request: Request) -> Any:
        if isinstance(request, ReadMany):
            return [read(each) for each in request.reads]
        if isinstance(request, ReadData):
            return ready
        assert isinstance(request, ReadChildren)
        if request.path.endswith("runnable"):
            return runnable
        if request.path == "/r/plan-0000000001":
            return tasks
        return ["ready"] if "/task-" in request.path else []

    with little_memory(CHECK_BYTES):
        step = check(Paths("/r"), "0000000001", repair=False)
        assert run_step(step, read, lambda answer: answer) == Report(tasks=CHECKED)


def test_a_used_up_long_listing_does_not_make_the_plan_idle() -> None:
    seen = view()
    seen.update(running(names(*range(100))), (0, 1), 10.0)
    seen.take(100)
    assert not seen.is_idle(10.0)
    seen.update(running(names(1)), (0, 1), 11.0)
    seen.take(1)
    assert seen.is_idle(11.0)
