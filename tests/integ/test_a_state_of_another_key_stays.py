"""A client that cannot read the state of a plan does not change it: it may be cancelled."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.support import Here, Run, key_file, secret_of

pytestmark = pytest.mark.either


@pytest.mark.parametrize("state", ["defining", "running", "paused", "cancelled"])
@pytest.mark.parametrize("key", ["theirs", ""])
def test_a_state_is_not_changed_with_another_key_or_without_a_key(
    key: str,
    state: str,
    here: Here,
    run: Run,
    znodes: KazooClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with zkplan.connect(*here, secret=secret_of("ours")) as client:
        plan = client.create_plan()
        plan.add_task(int)
        changes = {"paused": [plan.pause], "cancelled": [plan.cancel]}
        for change in [] if state == "defining" else [plan.mark_ready, *changes.get(state, [])]:
            change()
        before = znodes.exists(f"{plan.path}/ready") and znodes.get(f"{plan.path}/ready")
        if key:
            monkeypatch.setenv("ZKPLAN_SECRET_FILES", str(key_file(tmp_path, key)))
        of_ready_ones = [] if state == "defining" else ["set --priority 4"]
        for words in ("pause", "resume", "mark-ready", "cancel", *of_ready_ones):
            command, *options = words.split()
            refused = run("plan", command, plan.number, *options)
            assert refused.code == 2, words
            assert re.search(f"{plan.path}(/ready)? is not used: it is sealed with", refused.err)
            assert "secret-files" in refused.err
        assert before == (znodes.exists(f"{plan.path}/ready") and znodes.get(f"{plan.path}/ready"))
        assert plan.status().state == state


def test_a_plan_whose_record_was_overwritten_can_be_paused_and_cancelled(
    here: Here, znodes: KazooClient
) -> None:
    with zkplan.connect(*here, secret=secret_of("ours")) as client:
        with client.create_plan() as plan:
            plan.add_task(int)
        znodes.set(plan.path, b"{}")
        plan.pause()
        assert plan.status().state == "paused"
        plan.cancel()
        assert plan.status().state == "cancelled"
