"""Scenarios of other modules also pass when every value is in a store, even across processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tools.stores import environment

from . import test_a_plan_grows_while_it_runs as growing
from . import test_failures_are_reported as failing
from . import test_no_work_is_lost as lost
from . import test_plans_move_between_servers as moving
from . import test_results_flow_down_the_edges as flowing
from .test_no_work_is_lost import client  # noqa: F401 - a fixture
from .test_plans_move_between_servers import embedded_hosts, places  # noqa: F401 - fixtures


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "all values"
    for name, value in environment(folder).items():
        monkeypatch.setenv(name, value)
    yield folder
    assert folder.exists(), "nothing of this scenario went to the store"


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_stalls", "worker")
class TestWithAWorkerBeside:
    """Edges, wide deliveries, cascades, retries and adds by running tasks."""

    test_many = staticmethod(flowing.test_one_task_feeds_many_and_many_feed_one)
    test_join = staticmethod(
        flowing.test_a_task_with_thousands_of_dependencies_can_be_added_while_they_finish
    )
    test_kept = staticmethod(flowing.test_last_tasks_keep_their_results_and_others_do_so_on_request)
    test_retry = staticmethod(failing.test_a_dead_task_runs_again_after_a_retry)
    test_cascade = staticmethod(failing.test_a_cascade_fails_all_dependents_and_the_plan_drains)
    test_original = staticmethod(
        failing.test_a_dead_task_gives_the_original_exception_and_the_remote_traceback
    )
    test_adds = staticmethod(growing.test_a_running_task_adds_tasks_that_add_tasks)
    test_late = staticmethod(growing.test_a_finished_task_with_a_kept_result_may_be_an_argument)
    test_upon_finished = staticmethod(
        growing.test_a_running_task_depends_on_finished_tasks_of_its_plan
    )
    test_upon_itself = staticmethod(
        growing.test_the_result_of_the_adding_task_is_an_argument_of_the_added_task
    )


@pytest.mark.slow
class TestWithProcesses:
    """Workers that are killed or late, and plans that move."""

    test_kills = staticmethod(lost.test_no_work_is_lost_when_workers_are_killed_at_random_moments)
    test_paused = staticmethod(
        lost.test_a_worker_paused_past_its_session_cannot_commit_and_keeps_working
    )
    test_to_and_fro = staticmethod(
        moving.test_a_plan_moved_back_and_forth_while_running_runs_each_task_once
    )

    @pytest.mark.usefixtures("nothing_stalls")
    @pytest.mark.parametrize(("origin", "target"), [("here", "another root"), ("here", "embedded")])
    def test_a_half_run_plan_with_values_by_reference_goes_on_elsewhere(
        self,
        origin: str,
        target: str,
        places: dict[str, Any],  # noqa: F811 - the fixture
        tmp_path: Path,
    ) -> None:
        moving.test_a_half_run_plan_goes_on_after_its_import_elsewhere(
            origin, target, 5, places, tmp_path
        )
