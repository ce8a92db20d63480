"""Stores that are no folder of this machine: a blob is whole or not there."""

from __future__ import annotations

import gc
import operator
from collections.abc import Iterator
from typing import Any

import pytest

import zkplan
from zkplan.errors import StoreUnavailable
from zkplan.store.files import Store
from zkplan.store.reference import key_of

from .objects import Objects, object_store
from .support import Here, wait_until, working

pytestmark = pytest.mark.either


@pytest.fixture
def objects(zkplan_root: str) -> Iterator[str]:
    with object_store(zkplan_root.strip("/")) as url:
        yield url


@pytest.fixture(params=["objects", "memory"])
def url(request: pytest.FixtureRequest, objects: str, zkplan_root: str) -> str:
    return objects if request.param == "objects" else f"memory:/{zkplan_root}"


@pytest.mark.parametrize("size", [10, 12_000_000])
def test_a_write_that_breaks_off_leaves_no_object_and_no_upload(url: str, size: int) -> None:
    """The larger one has been sent in part by then."""
    store = Store(url)
    with pytest.raises(StoreUnavailable):
        store.write("plan-1", "a-00", [bytes(size), 7])  # type: ignore[list-item]
    gc.collect()  # a file that is forgotten closes itself
    assert store.names("plan-1") == []
    assert Objects.uploads == set()
    store.write("plan-1", "a-00", [bytes(size), b"7"])
    assert bytes(store.read("plan-1", "a-00")) == bytes(size) + b"7"


def test_a_plan_runs_with_all_its_values_in_such_a_store(here: Here, url: str) -> None:
    options: dict[str, Any] = {"store": url, "inline_limit": 0}
    with zkplan.connect(*here, **options) as client, working(*here, **options):
        with client.create_plan() as plan:
            parts = [plan.add_task(operator.add, [[number], [0]]) for number in range(12)]
            whole = plan.add_task(sum, [parts, []])
        assert whole.result(30) == [each for number in range(12) for each in (number, 0)]
        assert plan.check().problems == []
        folder, store = client.values.folder_of(plan.path), Store(url)
        wait_until(
            lambda: list(map(key_of, store.names(folder))) == [f"{whole.number}.0"],
            "the sweep leaves the kept result alone",
        )
        plan.remove()
        assert store.names(folder) == []
