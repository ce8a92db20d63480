"""A worker and an author with different stores are told which store holds a value, and no value
counts as lost."""

from __future__ import annotations

import operator
import re
from pathlib import Path
from typing import Any

import pytest

from tests.tools.stores import Place
from tests.tools.support import Here, secret_of, wait_until
from zkplan.author.export import export_plan, import_plan
from zkplan.errors import StoredValueLost, StoreUnavailable
from zkplan.values.store import Store


def id_of(place: Place) -> str:
    [found] = Store(place.options["store"]).ids()
    return found


def named(place: Place) -> str:
    """What a client with another store is told of the store of a value."""
    return f"(ID {id_of(place)}): give authors and workers the same one"


def test_a_value_in_either_of_two_stores_waits_for_a_worker_with_that_one(
    here: Here, tmp_path: Path
) -> None:
    """Both have values of the plan, so that neither looks like a store without it."""
    mine, other = (Place(here, tmp_path / name, inline_limit=200) for name in ("mine", "other"))
    there = {"queues": ["there"]}
    with mine.client() as client:
        with client.create_plan(attempts=1, retry_delay=0) as plan:
            made = plan.add_task(bytes, [1000], keep=True, queue="there")
            given = plan.add_task(operator.length_hint, [bytes(2000)], keep=True, queue="there")
            taken = plan.add_task(operator.length_hint, [made])
        with other.working(of_worker=there):
            wait_until(lambda: named(mine) in given.info().last_error, "it says whose it is")
            wait_until(
                lambda: made.state() == "finished", "the other store has a value of the plan"
            )
        with mine.working():
            wait_until(lambda: named(other) in taken.info().last_error, "likewise")
        with pytest.raises(StoreUnavailable, match=re.escape(named(other))):
            made.result(5)
        with other.client() as author:
            assert author.plan(plan.path).task(made.number).result(5) == bytes(1000)
        [problem] = plan.check().problems
        assert f"with ID {id_of(other)}" in problem
        with other.working(), mine.working(of_worker=there):
            assert plan.results([given, taken], 30) == [2000, 1000]


@pytest.mark.parametrize("keys", [{}, {"secret": secret_of("ours")}], ids=["open", "sealed"])
def test_lost_values_of_an_imported_plan_are_not_sought_in_its_first_store(
    keys: dict[str, Any], place: Place, there: Here, tmp_path: Path
) -> None:
    target = Place(there, tmp_path / "target")
    place.options |= keys
    target.options |= keys
    with place.client() as client:
        with client.create_plan() as plan:
            plan.add_task(operator.add, [[1], [2]], name="the sum")
        with place.working():
            plan.wait(30)
        export_plan(plan, tmp_path / "plan")
    with target.client() as author:
        found = author.plan(int(import_plan(author, tmp_path / "plan")))
        assert id_of(target) != id_of(place)
        for name in target.blobs(found):
            (target.folder_of(found) / name).unlink()
        (target.folder_of(found) / "another").touch()
        with pytest.raises(StoredValueLost, match="the sum"):
            found.task("the sum").result(5)
