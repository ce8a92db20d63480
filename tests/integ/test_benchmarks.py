"""The benchmark runs from end to end and writes a complete report; no figure is judged."""

from __future__ import annotations

import json
import subprocess
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.tools.support import run_python
from zkplan.testing import find_zookeeper
from zkplan.testing.server_process import free_port
from zkplan.testing.servers import ZooKeeperServer

#: A benchmark that hangs is ended. Its speed is no matter of a test: it takes 20 s, and took more
#: than 100 s on a machine whose two processors had twelve processes to run.
_HANGS_S = 400
needs_java = pytest.mark.skipif(find_zookeeper() is None, reason="starts a server with Java")
pytestmark = pytest.mark.timeout(_HANGS_S + 20)


def benchmarks(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "benchmarks", *arguments, timeout=_HANGS_S)


@contextmanager
def given(server: str) -> Iterator[tuple[str, str]]:
    """The option for a server that is given, or for one that the benchmark starts."""
    if server == "zookeeper":
        with ZooKeeperServer() as started:
            yield "--hosts", started.hosts
    else:
        yield "--server", server


@pytest.mark.parametrize(
    "server",
    [
        pytest.param("zookeeper", marks=[needs_java, pytest.mark.chaos]),
        pytest.param("embedded", marks=pytest.mark.slow),
    ],
)
def test_a_quick_benchmark_measures_the_chosen_parts_and_writes_a_full_report(
    server: str, tmp_path: Path
) -> None:
    file = tmp_path / "report.json"
    with given(server) as option:
        only = ("--only", "independent,chain")
        ended = benchmarks("--quick", *only, "--json", str(file), *option)
    assert ended.returncode == 0, ended.stderr
    report = json.loads(file.read_text())
    names = [row["name"] for row in report["rows"]]
    assert names == ["independent 200", "chain 20", "chain 20, pure"]
    for row in report["rows"]:
        assert row["server"] == server
        figures = ("total", "execution", "submission", "values")
        assert min(row[figure] for figure in figures) > 0
        assert len(row["runs"]) == report["runs"] == 1
        assert row["runs"][0]["statistics"]["committed"] == row["runs"][0]["tasks"]
    kinds = {(limit["kind"], limit["clients"]) for limit in report["limits"]}
    assert kinds == {(kind, n) for kind in ("wire", "kazoo", "raw", "single") for n in (1, 2)}
    assert all(limit["operations_per_s"] > 0 for limit in report["limits"])
    assert list(report["servers"]) == [server]
    assert report["servers"][server][0].isdigit()
    assert report["machine"]["processors"] >= 1
    assert "independent 200" in ended.stdout
    assert "chain 20" in ended.stdout


@pytest.mark.parametrize(
    "server",
    [
        pytest.param("both", marks=[needs_java, pytest.mark.chaos]),
        pytest.param("embedded", marks=pytest.mark.slow),
    ],
)
def test_the_two_servers_are_compared_request_by_request(server: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    with given(server) as option:
        ended = benchmarks("--quick", "--only", "server", "--json", str(file), *option)
    assert ended.returncode == 0, ended.stderr
    report = json.loads(file.read_text())
    assert all(row["total"] > 0 for row in report["rows"])
    rates = [row for row in report["rows"] if row["unit"] == "operations/s"]
    ratios = {row["name"] for row in report["rows"] if row["unit"] == "ratio"}
    kinds = {row["name"] for row in rates}
    others = {"zookeeper"} if server == "both" else set()
    assert {row["server"] for row in rates} == {"embedded"} | others
    compared = kinds | {"independent 100", "random 50 x 2"} if others else set()
    assert ratios == {f"{name}: embedded / zookeeper" for name in compared}
    rest = {row["name"] for row in report["rows"] if row["server"] == "embedded"} - kinds
    for what in ("longest create under load", "start to first answer", "memory of the server"):
        assert any(name.startswith(what) for name in rest), what


@pytest.mark.slow
def test_peers_that_are_not_installed_are_skipped_and_the_rest_are_compared(tmp_path: Path) -> None:
    python = venv_without_peers(tmp_path)
    file = tmp_path / "report.json"
    options = ("--server", "embedded", "--peers-python", str(python), "--json", str(file))
    ended = benchmarks("--quick", "--only", "peers", *options)
    assert ended.returncode == 0, ended.stderr
    rows = json.loads(file.read_text())["rows"]
    skipped = {row["name"]: row["note"] for row in rows if not row["unit"]}
    assert set(skipped) == {"dask", "ray", "Dask graphs"}
    assert all("pip install" in note for note in skipped.values())
    assert str(python) in skipped["dask"]
    measured = {row["name"]: row for row in rows if row["unit"]}
    graphs = ["independent 200", "random 100 x 2", "map-reduce 1-50-1", "random 30 x 3"]
    assert set(measured) == {*graphs, "chain 20", "chain 20, pure"}
    for row in measured.values():
        assert row["server"] == "embedded"
        assert row["values"] > 0


@pytest.mark.slow
def test_the_lease_benchmark_reports_zkplan_alone_if_no_peer_is_installed(tmp_path: Path) -> None:
    python = venv_without_peers(tmp_path)
    sizes = ("--tasks", "100", "--batch", "20", "--runs", "1")
    command = ("-m", "benchmarks.leases", "--peers", str(python), *sizes)
    ended = run_python(*command, timeout=_HANGS_S)
    assert ended.returncode == 0, ended.stderr
    for name in ("dbos", "pgqueuer"):
        assert f"{name}: skipped: {python} does not have it" in ended.stderr
    _, *rows = ended.stdout.splitlines()
    kinds = {row.split()[1] for row in rows if row.startswith("zkplan, ")}
    assert kinds == {"embedded"} | ({"zookeeper"} if find_zookeeper() is not None else set())
    assert len(rows) == len(kinds)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("results", "--server", "embedded", "--results", "300", "--rounds", "1"), ["300 results"]),
        (
            ("keys", "--server", "embedded", "--quick", "--rounds", "1", "--only", "chain,stress"),
            ["chain: none", "stress: none", "secret  x", "closed  x"],
        ),
        (
            ("frames", "--files", "11", "--least", "0.05", "--most", "0.1", "--rounds", "1"),
            ["11 files", "zkplan: ", "peak memory grew"],
        ),
    ],
    ids=["results", "keys", "frames"],
)
def test_a_separate_benchmark_measures_small_sizes_and_prints_its_lines(
    words: tuple[str, ...], told: list[str]
) -> None:
    if words[0] == "frames":
        pytest.importorskip("pandas", reason="pandas is not installed: pip install zkplan[dask]")
    module, *options = words
    ended = run_python("-m", f"benchmarks.{module}", *options, timeout=_HANGS_S)
    assert ended.returncode == 0, ended.stderr
    assert all(word in ended.stdout for word in told), ended.stdout


@pytest.mark.slow
def test_growth_with_custom_numbers_of_pending_tasks_judges_nothing(
    tmp_path: Path,
) -> None:
    file = tmp_path / "report.json"
    only = ("--only", "growth", "--pending", "150,300", "--server", "embedded")
    ended = benchmarks("--quick", *only, "--json", str(file))
    assert ended.returncode == 0, ended.stderr
    report = json.loads(file.read_text())
    assert [run["pending"] for run in report["growth"]["embedded"]] == [150, 300]
    assert report["missed"] == []


def venv_without_peers(folder: Path) -> Path:
    venv.create(folder / "empty", with_pip=False)
    return folder / "empty" / "bin" / "python"


NOBODY = ("--quick", "--only", "chain", "--hosts", f"127.0.0.1:{free_port()}")


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("--server", "embedded", "--hosts", "127.0.0.1:2181"), 2, ["--hosts"]),
        (("--only", "independant"), 2, ["independant", "independent"]),
        (("--only", "peers", "--peers-python", "/none/such"), 2, ["/none/such", "environment"]),
        (("--only", "growth", "--pending", "300,20"), 2, ["300,20", "10000,50000"]),
        ((*NOBODY, "--connect-timeout", "1"), 3, ["ZooKeeper"]),
    ],
    ids=[
        "a given ZooKeeper and only the embedded server",
        "unknown workload",
        "no such environment",
        "sizes in the wrong order",
        "no answer",
    ],
)
def test_the_exit_code_says_why_a_benchmark_could_not_run(
    arguments: tuple[str, ...], code: int, told: list[str]
) -> None:
    ended = benchmarks(*arguments)
    assert ended.returncode == code
    assert all(word in ended.stderr for word in told)
