"""One option turns traces on in each process of a worker; without it they cost nothing."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace

from tests.tools.support import TOP, Here, WorkerProcess, run_python, wait_until
from zkplan import Client

#: As opentelemetry-distro does for a program: set up the SDK as the environment says.
_DISTRO = """
import os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

class Configurator:
    def configure(self):
        out = open(os.environ["SPANS"], "a", buffering=1)
        line = lambda span: span.to_json(indent=None) + "\\n"
        exporter = ConsoleSpanExporter(out=out, formatter=line)
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
"""


@pytest.fixture
def spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands find a distro, which writes spans to this file."""
    about = tmp_path / "distro-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: distro\nVersion: 1.0\n")
    entry = "[opentelemetry_configurator]\nconfigurator = a_distro:Configurator\n"
    (about / "entry_points.txt").write_text(entry)
    (tmp_path / "a_distro.py").write_text(_DISTRO)
    path = os.pathsep.join([str(tmp_path), str(TOP), *filter(None, [os.getenv("PYTHONPATH")])])
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    file = tmp_path / "spans"
    file.touch()
    monkeypatch.setenv("SPANS", str(file))
    return file


def _read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def span_within(*_: object) -> None:
    with trace.get_tracer("of the user").start_as_current_span("within"):
        pass


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_one_option_traces_all_processes_of_a_worker_and_its_tasks(
    here: Here, zkplan_client: Client, spans: Path, isolation: Any
) -> None:
    options = ("--traces", "--processes", "2", "--threads", "1", "--isolation", isolation)
    with WorkerProcess(*here, spans.parent, *options).wait_ready(2) as worker:
        plan = zkplan_client.create_plan()
        with plan:
            first = plan.add_task(span_within)
            plan.add_task(span_within, [first])
        wait_until(lambda: plan.status().state == "done", "the plan is done")
        wait_until(lambda: len(_read(spans)) >= 4, "all spans are exported")
        assert not worker.said("--traces:")
    found = _read(spans)
    runs = [span for span in found if span["name"] == "run span_within"]
    inner = [span for span in found if span["name"] == "within"]
    assert len(found) == 4
    assert {span["parent_id"] for span in inner} == {run["context"]["span_id"] for run in runs}
    linked = [link["context"]["span_id"] for run in runs for link in run["links"]]
    (begins,) = [run for run in runs if not run["links"]]
    assert linked == [begins["context"]["span_id"]]


def test_without_a_provider_the_command_says_that_spans_are_dropped(
    here: Here, tmp_path: Path
) -> None:
    with WorkerProcess(*here, tmp_path, "--traces").wait_ready() as worker:
        assert worker.said("--traces: there is no provider, so spans go nowhere")


def test_without_the_package_the_error_says_what_to_install() -> None:
    hidden = "import sys; sys.modules['opentelemetry'] = None; from zkplan.cli import main; main()"
    ended = run_python("-c", hidden, "worker", "--traces", "--hosts", "127.0.0.1:1")
    assert "pip install 'zkplan[opentelemetry]'" in ended.stderr
    assert (ended.returncode != 0, ended.stderr.count("\n")) == (True, 1)


def test_opentelemetry_is_not_imported_unless_asked_for() -> None:
    everything = (
        "import sys, zkplan, zkplan.cli.worker, zkplan.runtime.isolation_child; "
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert run_python("-c", everything).returncode == 0


def test_the_tracing_example_prints_what_its_page_says(tmp_path: Path) -> None:
    page = (TOP / "docs/operate/tracing.md").read_text(encoding="utf-8")
    ((code, output),) = re.findall(r"```python\n(.*?)```.*?```text\n(.*?)```", page, re.DOTALL)
    (tmp_path / "example.py").write_text(code, encoding="utf-8")
    ended = run_python(str(tmp_path / "example.py"))
    assert (ended.stdout, ended.stderr, ended.returncode) == (output, "", 0)
