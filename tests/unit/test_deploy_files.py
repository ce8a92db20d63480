"""The files of `deploy/`: Prometheus accepts the rules, and each alert fires when it must."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from tests.tools.promtool import promtool

DEPLOY = Path(__file__).parents[2] / "deploy"


def run(*words: str) -> str:
    ran = subprocess.run(
        [promtool(), *words], cwd=DEPLOY, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def test_prometheus_takes_the_configuration_and_the_rules() -> None:
    assert "SUCCESS" in run("check", "config", "prometheus.yml")


def test_each_alert_fires_when_it_must() -> None:
    run("test", "rules", "zkplan-alerts-test.yml")
    alerts = re.findall(r"- alert: (\w+)", (DEPLOY / "zkplan-alerts.yml").read_text())
    tested = (DEPLOY / "zkplan-alerts-test.yml").read_text()
    fires = {name for name in alerts if re.search(rf"alertname: {name}\n +exp_alerts:", tested)}
    assert fires == set(alerts)


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    panels = json.loads((DEPLOY / "grafana-dashboard.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
