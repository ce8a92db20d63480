"""Who cannot read the state of a plan does not change it: it may have been cancelled."""

from __future__ import annotations

from pathlib import Path

import pytest
from kazoo.client import KazooClient

import zkplan

from .support import Here, Run, key_file, secret_of

pytestmark = pytest.mark.either


@pytest.mark.parametrize("state", ["running", "paused", "cancelled"])
@pytest.mark.parametrize("key", ["theirs", ""])
def test_a_state_is_not_changed_with_another_key_or_with_none(
    key: str,
    state: str,
    here: Here,
    run: Run,
    znodes: KazooClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with zkplan.connect(*here, secret=secret_of("ours")) as client:
        with client.create_plan() as plan:
            plan.add_task(int)
        for change in {"paused": [plan.pause], "cancelled": [plan.cancel]}.get(state, []):
            change()
        before = znodes.get(f"{plan.path}/ready")
        if key:
            monkeypatch.setenv("ZKPLAN_SECRET_FILES", str(key_file(tmp_path, key)))
        for words in ("pause", "resume", "set --priority 4", "mark-ready"):
            command, *options = words.split()
            refused = run("plan", command, plan.number, *options)
            assert refused.code == 2, words
            assert f"{plan.path}/ready is not used: it is sealed with" in refused.err
            assert "(secret-files)" in refused.err
        assert znodes.get(f"{plan.path}/ready") == before
        assert plan.status().state == state
