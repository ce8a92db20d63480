"""`joblib.Parallel` and scikit-learn run their calls on workers; so does `zkplan.Executor`."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import zkplan
from tests.tools.support import die_once, is_running, note, notes, wait_until
from zkplan import Client, ZkplanError

from .tasks_of_processes import go_on

pytest.importorskip("joblib", reason="joblib is not installed: pip install zkplan[joblib]")

import joblib

from zkplan.integrations.joblib import register


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with zkplan.local(workers=2, threads=3) as connected:
        yield connected


@pytest.fixture
def backend(client: Client) -> Iterator[None]:
    """The backend is chosen within the test. No plan may be left after it."""
    register()
    with joblib.parallel_config(backend="zkplan", client=client):
        yield
    wait_until(lambda: client.plans() == [], "no plan is left")


def square(x: int) -> int:
    return x * x


def fail_at_30(x: int) -> int:
    if x == 30:
        raise LookupError("on purpose")
    return x


def note_or_die(file: Path, x: int) -> int:
    note(file, str(x))
    die_once(file, 20)
    return x


@pytest.mark.usefixtures("backend")
def test_results_come_in_the_order_of_the_calls() -> None:
    calls = [joblib.delayed(square)(x) for x in range(500)]
    assert joblib.Parallel()(calls) == [x * x for x in range(500)]
    assert list(joblib.Parallel(return_as="generator")(calls)) == [x * x for x in range(500)]
    with joblib.Parallel(n_jobs=2) as parallel:
        assert [sum(parallel(calls[:3])), sum(parallel(calls[:3]))] == [5, 5]


@pytest.mark.usefixtures("backend")
def test_the_exception_of_a_call_ends_the_others_and_is_raised_here() -> None:
    with pytest.raises(LookupError, match="on purpose") as caught:
        joblib.Parallel()(joblib.delayed(fail_at_30)(x) for x in range(1000))
    assert "in fail_at_30" in str(caught.value.__cause__)


@pytest.mark.usefixtures("backend")
def test_a_call_whose_worker_is_killed_runs_on_another_one(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "runs"
    calls = (joblib.delayed(note_or_die)(file, x) for x in range(60))
    assert joblib.Parallel()(calls) == list(range(60))
    assert Path(f"{file}-died").exists()
    wait_until(lambda: len(client.workers()) == 2, "there is another worker in its place")


@pytest.mark.skipif(sys.platform != "linux", reason="processes of tasks need Linux")
@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_calls_that_timed_out_leave_their_slots_to_the_next_calls(
    isolation: str, tmp_path: Path
) -> None:
    register()
    file, gate = tmp_path / "notes", tmp_path / "gate"
    with (
        zkplan.local(workers=1, threads=2) as client,
        joblib.parallel_config(backend="zkplan", client=client, isolation=isolation),
    ):
        with pytest.raises(multiprocessing.TimeoutError):
            joblib.Parallel(timeout=4)(joblib.delayed(go_on)(file, gate) for _ in range(2))
        wait_until(lambda: notes(file).count("thread told") == 2, "both are told")
        assert joblib.Parallel(timeout=30)(joblib.delayed(square)(x) for x in range(3)) == [0, 1, 4]
        pids = {int(line.split()[1]) for line in notes(file) if not line.endswith("told")}
        if isolation == "process":
            wait_until(lambda: not any(map(is_running, pids)), "their processes have ended")
        assert client.plans() == []
        gate.touch()


@pytest.mark.usefixtures("backend")
def test_n_jobs_of_minus_one_means_all_slots_of_the_workers() -> None:
    assert [joblib.effective_n_jobs(n) for n in (-1, -2, 9)] == [6, 5, 9]


def test_without_a_client_or_a_worker_the_error_says_what_to_do() -> None:
    register()
    with pytest.raises(ZkplanError, match="needs a client"):
        joblib.parallel_config(backend="zkplan")
    with (
        zkplan.connect("embedded:") as alone,
        joblib.parallel_config(backend="zkplan", client=alone),
        pytest.raises(ZkplanError, match="no worker is registered"),
    ):
        joblib.Parallel()([joblib.delayed(square)(1)])


@pytest.mark.usefixtures("backend")
def test_a_grid_search_of_scikit_learn_finds_the_same_with_and_without_workers() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    from sklearn.datasets import load_iris
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    measured, kinds = load_iris(return_X_y=True)

    def best(n_jobs: int) -> tuple[dict[str, object], float]:
        search = GridSearchCV(SVC(), {"C": [0.1, 1, 10], "gamma": ["scale", 0.1]}, n_jobs=n_jobs)
        search.fit(measured, kinds)
        return search.best_params_, search.best_score_

    assert best(-1) == best(1)


@pytest.mark.slow
def test_a_call_submitted_just_after_the_plan_drained_is_not_lost(client: Client) -> None:
    with zkplan.Executor(client) as executor:
        for x in range(300):
            assert executor.submit(square, x).result(30) == x * x
    assert client.plans() == []


@pytest.mark.slow
def test_an_executor_leaves_no_plan_of_failed_calls(client: Client) -> None:
    executor = zkplan.Executor(client)
    assert isinstance(executor.submit(fail_at_30, 30).exception(30), LookupError)
    executor.shutdown(wait=False, cancel_futures=True)
    wait_until(lambda: client.plans() == [], "no plan is left")
