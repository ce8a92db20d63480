"""What every test shares: markers by folder, hypothesis profiles, and the plugin's fixtures."""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from pathlib import Path

import hypothesis
import pytest

# An installed zkplan brings its plugin by entry point; a checkout on the path alone does not.
if not entry_points(group="pytest11", name="zkplan"):
    pytest_plugins = ["zkplan.testing.plugin"]

_TESTS = Path(__file__).parent
#: The tests of chaos that start no workers. A module that is not named here counts as one that
#: does: forgotten, it runs too seldom, and does not stop the quick tests for minutes.
_QUICK_CHAOS = {
    "test_every_violation_is_found.py",
    "test_faults_excuse_whom_they_touch.py",
    "test_faults_take_effect.py",
    "test_runs_fail_when_they_should.py",
    "test_the_store_is_judged.py",
    "test_what_is_removed_is_gone.py",
}
#: The chaos tests that run with every change: some faults, and mutants beside the real protocol.
#: By the module, and what stands in brackets in the name of the test.
SAMPLE = {
    ("test_every_fault.py", "embedded-worker killed"),
    ("test_every_fault.py", "embedded-link cut"),
    ("test_every_fault.py", "embedded-commit answer lost"),
    ("test_mutants_are_caught.py", "add without identity, answer_to_an_add_lost"),
}
#: The modules of integ that show what a command or a call says, or what workers decide among
#: themselves, which is the same on either kind of server. `dev.py test` runs them on the embedded
#: one alone.
_EITHER = {
    "test_a_command_asks_before_it_removes.py",
    "test_a_dead_process_makes_nobody_wait.py",
    "test_a_store_on_bad_days.py",
    "test_bad_input_is_refused.py",
    "test_calls_become_tasks.py",
    "test_checks_of_stored_values.py",
    "test_command_line.py",
    "test_commands_are_tasks.py",
    "test_dask_graphs_are_plans.py",
    "test_demo.py",
    "test_examples.py",
    "test_executor.py",
    "test_functions_of_every_kind_run.py",
    "test_functions_that_never_return.py",
    "test_garbage_in_the_tree.py",
    "test_joblib_calls_are_tasks.py",
    "test_kept_outcomes_are_listed.py",
    "test_keys_are_rotated.py",
    "test_local_shows_what_is_in_it.py",
    "test_memory_runs_out.py",
    "test_metrics_are_served.py",
    "test_neighbours_of_a_task_are_named.py",
    "test_no_command_prints_a_secret.py",
    "test_notebooks_show_handles.py",
    "test_no_service_answers_with_a_secret.py",
    "test_no_secret_is_logged_or_shown.py",
    "test_plans_share_the_slots.py",
    "test_results_come_in_bulk.py",
    "test_scenarios_by_reference.py",
    "test_signals.py",
    "test_single_tasks_in_json.py",
    "test_tasks_are_found_across_plans.py",
    "test_tasks_are_listed.py",
    "test_tasks_in_processes_of_their_own.py",
    "test_tasks_run_on_failures.py",
    "test_the_graph_that_is_left_is_drawn.py",
    "test_the_page_in_a_browser.py",
    "test_the_page_of_integrations.py",
    "test_the_service_keeps_its_contract.py",
    "test_the_service_refuses.py",
    "test_the_worker_command.py",
    "test_top_is_a_live_view.py",
    "test_values_are_shown_when_asked_for.py",
    "test_values_by_reference.py",
    "test_waiting_says_why.py",
    "test_what_cannot_run_stops_nothing_else.py",
    "test_what_is_printed_can_be_typed.py",
    "test_why_reports_what_blocks_a_plan.py",
    "test_with_json_nothing_is_unpickled.py",
    "test_work_in_any_language.py",
    "test_workers_take_orders_from_elsewhere.py",
}
#: The modules of integ about a server in trouble. `dev.py test` runs them on both kinds of server.
#: What is in neither set runs there on the real ZooKeeper alone; `dev.py integ` runs all on both.
_BOTH = {
    "test_a_full_server_loses_nothing.py",
    "test_access_lists_refuse_with_a_reason.py",
    "test_no_work_is_lost.py",
}
_KINDS = ("zookeeper", "embedded")

# In CI the examples are the same in each run, and a slow machine is not a failure.
hypothesis.settings.register_profile("local", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--zookeeper-kind",
        choices=[*_KINDS, "ensemble", "both", "marked"],
        default="both",
        help="the server of tests that need one: the real ZooKeeper, zkplan's own, or first the "
        "one, then the other (default); `marked`: on those that its markers name (`either`, "
        "`both`), else on the real one; an ensemble is for the tests of chaos alone, where the "
        "default is all three",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that uses a server on every kind of it that is wanted."""
    if "zookeeper_kind" in metafunc.fixturenames:
        wanted = metafunc.config.getoption("--zookeeper-kind")
        if wanted == "marked":
            module = metafunc.definition.path.name
            either = metafunc.definition.get_closest_marker("either") or module in _EITHER
            wanted = "embedded" if either else "both" if module in _BOTH else "zookeeper"
        kinds = [kind for kind in _KINDS if wanted in ("both", kind)]
        metafunc.parametrize("zookeeper_kind", kinds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def zookeeper_kind(request: pytest.FixtureRequest) -> str:
    """The kind of server that this run of a test uses."""
    kind: str = request.param
    return kind


@pytest.fixture(scope="session")
def zkplan_hosts(zookeeper_hosts: str) -> str:
    """Here `zkplan_client` is on the server under test."""
    return zookeeper_hosts


@pytest.fixture
def zkplan_threads() -> int:
    """Here `zkplan_client` brings no worker: each test says which workers there are, and when."""
    return 0


@pytest.fixture
def zkplan_secret() -> str:
    """Here what no test is about is not signed, so that any worker runs it."""
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests by their folders and modules, so that none is forgotten."""
    for item in items:
        if "zookeeper_kind" in getattr(item, "fixturenames", ()):
            item.add_marker("zookeeper")
        folder = item.path.relative_to(_TESTS).parts[0] if item.path.is_relative_to(_TESTS) else ""
        if folder == "integ":
            item.add_marker("integ")
            if item.path.name in _EITHER:
                item.add_marker("either")
            elif item.path.name in _BOTH:
                item.add_marker("both")
        elif folder == "chaos" and item.path.name not in _QUICK_CHAOS:
            item.add_marker("chaos")
            callspec = getattr(item, "callspec", None)
            if callspec is not None and (item.path.name, callspec.id) in SAMPLE:
                item.add_marker("sample")
