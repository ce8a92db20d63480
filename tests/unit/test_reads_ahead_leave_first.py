"""The read of a task's dependents is sent before a slot can end the task."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from zkplan.protocol.core.edges import Edge
from zkplan.protocol.core.load import Loaded
from zkplan.runtime.ahead import Prefetch
from zkplan.runtime.claimer import Loader
from zkplan.runtime.claims import Claims
from zkplan.runtime.job import Job
from zkplan.runtime.plan_candidates import Candidates
from zkplan.runtime.slots import Slots
from zkplan.runtime.steps import Steps
from zkplan.transport.server_clock import CLOCK

from .attempts import claim


def test_the_dependents_of_a_task_are_requested_before_it_can_end() -> None:
    done: list[str] = []
    held = SimpleNamespace(
        capacity=SimpleNamespace(last_end=0.0),
        shares=SimpleNamespace(opened=lambda path, plan: None),
        jobs=dict[str, Job](),
        free=lambda: 5,
        starts_nothing=False,
    )
    view = SimpleNamespace(record=None, version=3, running=True)
    loaded = Loaded(
        claim(), b"", [], [("prov-0000000000", Edge("0000000002", "0000000000", 1, "5000"))]
    )
    loader = Loader(
        steps=cast("Steps", None),
        claims=cast("Claims", held),
        pool=cast("Slots", SimpleNamespace(put=lambda job: done.append("put into the queue"))),
        candidates=cast("Candidates", SimpleNamespace(views={loaded.claim.plan: view})),
        prefetch=cast(
            "Prefetch", SimpleNamespace(begin=lambda _, most: done.append(f"ask for {most()}"))
        ),
        clock=CLOCK,
    )
    loader.start([loaded])
    # The task itself is one of the five, as soon as it is in the queue.
    assert done == ["ask for 4", "put into the queue"]
    assert list(held.jobs) == [loaded.claim.path]


def test_a_task_claimed_by_a_commit_does_not_start_in_a_draining_worker() -> None:
    """The commit was sent before the order to stop; its claims come behind it."""
    handed_back: list[Job] = []
    held = SimpleNamespace(starts_nothing=True, hand_back=handed_back.extend)
    loader = Loader(
        steps=cast("Steps", None),
        claims=cast("Claims", held),
        pool=cast("Slots", None),
        candidates=cast("Candidates", None),
        prefetch=cast("Prefetch", None),
        clock=CLOCK,
    )
    loaded = Loaded(claim(), b"", [], [])
    loader.start([loaded])
    assert [job.loaded for job in handed_back] == [loaded]
