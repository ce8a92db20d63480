"""The benchmark runs from end to end and writes a complete report; no figure is judged."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from zkplan.testing.loopback import free_port

from .support import run_python

#: A benchmark that hangs is ended. Its speed is no matter of a test: it takes 20 s, and took more
#: than 100 s on a machine whose two processors had twelve processes to run.
_HANGS_S = 400
pytestmark = pytest.mark.timeout(_HANGS_S + 20)


def benchmarks(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "benchmarks", *arguments, timeout=_HANGS_S)


def test_a_quick_benchmark_measures_what_is_asked_for_and_writes_a_complete_report(
    zookeeper_kind: str, zookeeper_hosts: str, tmp_path: Path
) -> None:
    file = tmp_path / "report.json"
    ended = benchmarks(
        *("--quick", "--only", "independent,chain", "--json", str(file)),
        *_server(zookeeper_kind, zookeeper_hosts),
    )
    assert ended.returncode == 0, ended.stderr
    report = json.loads(file.read_text())
    assert [row["name"] for row in report["rows"]] == ["independent 200", "chain 20"]
    for row in report["rows"]:
        assert row["server"] == zookeeper_kind
        assert min(row["total"], row["execution"], row["submission"]) > 0
        assert len(row["runs"]) == report["runs"] == 1
        assert row["runs"][0]["statistics"]["committed"] == row["runs"][0]["tasks"]
    kinds = {(limit["kind"], limit["clients"]) for limit in report["limits"]}
    assert kinds == {(kind, n) for kind in ("wire", "kazoo", "raw", "single") for n in (1, 2)}
    assert all(limit["operations_per_s"] > 0 for limit in report["limits"])
    assert list(report["servers"]) == [zookeeper_kind]
    assert report["servers"][zookeeper_kind][0].isdigit()
    assert report["machine"]["processors"] >= 1
    assert "independent 200" in ended.stdout
    assert "chain 20" in ended.stdout


def test_the_two_servers_are_compared_request_by_request(
    zookeeper_kind: str, zookeeper_hosts: str, tmp_path: Path
) -> None:
    file = tmp_path / "report.json"
    both = ["--hosts", zookeeper_hosts, "--server", "both"]
    alone = ["--server", "embedded"]
    ended = benchmarks(
        *("--quick", "--only", "server", "--json", str(file)),
        *(both if zookeeper_kind == "zookeeper" else alone),
    )
    assert ended.returncode == 0, ended.stderr
    report = json.loads(file.read_text())
    assert all(row["total"] > 0 for row in report["rows"])
    rates = [row for row in report["rows"] if row["unit"] == "operations/s"]
    ratios = [row for row in report["rows"] if row["unit"] == "ratio"]
    kinds = {row["name"] for row in rates}
    assert {row["server"] for row in rates} == {"embedded", zookeeper_kind}
    if zookeeper_kind == "zookeeper":
        compared = kinds | {"independent 100", "random 50 x 2"}
        names = {f"{name}: embedded / zookeeper" for name in compared}
        assert {row["name"] for row in ratios} == names
    else:
        assert not ratios
    rest = {row["name"] for row in report["rows"] if row["server"] == "embedded"} - kinds
    for what in ("longest create under load", "start to first answer", "memory of the server"):
        assert any(name.startswith(what) for name in rest), what


def _server(kind: str, hosts: str) -> list[str]:
    """zkplan's own is started by the benchmark itself: it measures its process, too."""
    return ["--hosts", hosts] if kind == "zookeeper" else ["--server", "embedded"]


NOBODY = ("--quick", "--only", "chain", "--hosts", f"127.0.0.1:{free_port()}")


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("--server", "embedded", "--hosts", "127.0.0.1:2181"), 2, ["--hosts"]),
        (("--only", "independant"), 2, ["independant", "independent"]),
        ((*NOBODY, "--connect-timeout", "1"), 3, ["ZooKeeper"]),
    ],
    ids=["a given ZooKeeper and only the embedded server", "unknown workload", "no answer"],
)
def test_a_benchmark_that_cannot_run_says_why_by_its_code(
    arguments: tuple[str, ...], code: int, told: list[str]
) -> None:
    ended = benchmarks(*arguments)
    assert ended.returncode == code
    assert all(word in ended.stderr for word in told)
