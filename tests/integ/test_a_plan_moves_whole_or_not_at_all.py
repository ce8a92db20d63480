"""An export shows one moment or is refused; an import makes a whole plan or nothing that runs."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.support import Here, pass_gate, secret_of, tree, wait_until, working
from zkplan import (
    Client,
    PayloadUndecodable,
    PlanError,
    PlanNotFound,
    TaskSpec,
    WaitTimeout,
    ZkplanError,
)
from zkplan.author import export as moving
from zkplan.author.export import export_plan, import_plan
from zkplan.author.export_file import ArchiveWriter, open_archive
from zkplan.author.export_restore import begin, fill
from zkplan.author.export_snapshot import Znode, retire, survey
from zkplan.values.keyring import AES, new_key

from .moving import facts, half_run


def test_a_running_plan_is_not_exported_unless_it_is_paused_first(
    zkplan_client: Client, here: Here, tmp_path: Path
) -> None:
    gate, folder = str(tmp_path / "gate"), tmp_path / "exports"
    folder.mkdir()
    with zkplan_client.create_plan() as plan:
        slow = plan.add_task(pass_gate, [gate], keep=True)
        plan.add_task(len, [slow], keep=True)
    with pytest.raises(PlanError, match="is running: pause it"):
        export_plan(plan, folder / "plan")
    with working(*here):
        # Claimed is not enough: what has not begun when the plan is paused is handed back.
        wait_until(Path(f"{gate}-reached").exists, "it runs")
        with pytest.raises(WaitTimeout, match=r"1 of its tasks is still claimed"):
            export_plan(plan, folder / "plan", pause=True)
        assert os.listdir(folder) == []
        assert plan.status().state == "paused"
        Path(gate).touch()
        exported = export_plan(plan, folder / "plan", pause=True, wait=30)
    assert (exported.state, exported.tasks) == ("paused", 1)


def test_claims_of_a_vanished_worker_do_not_prevent_an_export(
    zkplan_client: Client, elsewhere: Client, znodes: KazooClient, tmp_path: Path
) -> None:
    """No other worker may be left to release them."""
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(len, ["four"])
    plan.pause()
    claims_node = f"{zkplan_client.root}/claims/gone"
    znodes.create(claims_node)
    (entry,) = znodes.get_children(f"{plan.path}/runnable")
    znodes.delete(f"{plan.path}/runnable/{entry}")
    znodes.create(f"{claims_node}/{plan.number}-{task.number}.0.1", b"5000.0")
    export_plan(plan, tmp_path / "plan", wait=10)
    assert not znodes.exists(claims_node)
    found = elsewhere.plan(import_plan(elsewhere, tmp_path / "plan"))
    assert [task.state for task in found.tasks()] == ["runnable"]


@pytest.mark.parametrize(
    ("child", "told"), [("incomplete", "is still being defined"), ("adds", "is still adding tasks")]
)
def test_a_plan_with_a_task_still_being_defined_or_adding_others_is_not_exported(
    zkplan_client: Client, znodes: KazooClient, tmp_path: Path, child: str, told: str
) -> None:
    plan = zkplan_client.create_plan()
    task = plan.add_task(len, ["four"])
    znodes.create(f"{task.path}/{child}", b"somebody-1")
    with pytest.raises(PlanError, match=told):
        export_plan(plan, tmp_path / "plan")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("adds", [1, 1000])
def test_tasks_added_while_a_plan_is_being_exported_are_noticed(
    adds: int,
    zkplan_client: Client,
    elsewhere: Client,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    plan = zkplan_client.create_plan()
    tasks = [plan.add_task(len, ["four"]) for _ in range(3)]
    added = 0

    class Meanwhile(ArchiveWriter):
        def add(self, znode: Znode) -> None:
            nonlocal added
            if added < adds and znode.path == f"task-{tasks[1].number}":
                plan.add_task(len, [[tasks[0]]])
                added += 1
            super().add(znode)

    monkeypatch.setattr(moving, "ArchiveWriter", Meanwhile)
    if adds > 1:
        with pytest.raises(PlanError, match="changed during each"):
            export_plan(plan, tmp_path / "plan")
        assert os.listdir(tmp_path) == []
        return
    export_plan(plan, tmp_path / "plan")
    found = elsewhere.plan(import_plan(elsewhere, tmp_path / "plan"))
    assert facts(found) == facts(plan)
    assert len(list(found.tasks())) == 4


def test_a_plan_that_changed_since_its_survey_is_not_retired(zkplan_client: Client) -> None:
    plan = zkplan_client.create_plan()
    plan.add_task(len, ["four"])
    transport = zkplan_client.transport
    stand = transport.run(survey(zkplan_client.paths, plan.number)).stand
    plan.add_task(len, ["more"])
    with pytest.raises(PlanError, match="was changed after"):
        transport.run(retire(plan.path, stand))
    assert plan.status().tasks == 2
    stand = transport.run(survey(zkplan_client.paths, plan.number)).stand
    transport.run(retire(plan.path, stand))
    assert plan.status().state == "cancelled"


def test_an_export_does_not_replace_a_file(zkplan_client: Client, tmp_path: Path) -> None:
    (tmp_path / "plan").write_text("precious")
    plan = zkplan_client.create_plan()
    with pytest.raises(ZkplanError, match="exists, and an export never overwrites"):
        export_plan(plan, tmp_path / "plan")
    with pytest.raises(ZkplanError, match="cannot be written: No such file"):
        export_plan(plan, tmp_path / "no folder" / "plan")


def test_a_plan_is_imported_only_once_unless_a_copy_is_asked_for(
    zkplan_client: Client, elsewhere: Client, tmp_path: Path
) -> None:
    plan = zkplan_client.create_plan("once")
    export_plan(plan, tmp_path / "plan")
    first = import_plan(elsewhere, tmp_path / "plan")
    for client in (elsewhere, zkplan_client):
        with pytest.raises(PlanError, match="exists already"):
            import_plan(client, tmp_path / "plan")
    assert import_plan(elsewhere, tmp_path / "plan", copy=True) != first
    assert [found.name for found in elsewhere.plans()] == ["once", "once"]


def test_an_interrupted_import_leaves_nothing_that_runs(
    zkplan_client: Client, elsewhere: Client, tmp_path: Path
) -> None:
    """It bears another name, takes no tasks, and goes as any other plan; then nothing is left."""
    old = half_run(zkplan_client, str(tmp_path / "ran"), str(tmp_path / "no"), 3)
    export_plan(old, tmp_path / "plan")
    elsewhere.prepare()
    transport = elsewhere.transport
    empty = tree(transport.client, elsewhere.root)
    with open_archive(tmp_path / "plan") as (header, lines):
        znodes = [line for line in lines if isinstance(line, Znode)]
    for count in (2, len(znodes) // 2, len(znodes)):
        number, mark = transport.run(begin(elsewhere.paths, old.record))

        def cut(count: int = count) -> Iterator[Znode]:
            yield from znodes[1:count]
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            transport.run(
                fill(elsewhere.paths, number, mark, header.creates, znodes[0].data, cut())
            )
        plan = elsewhere.plan(int(number))
        assert plan.name == "half (half imported)"
        assert plan.status().state == "defining"
        with pytest.raises(PlanNotFound):
            elsewhere.plan("half")
        with pytest.raises(PlanNotFound, match="being removed"):
            plan.add_task(len, ["four"])
        plan.remove()
        assert tree(transport.client, elsewhere.root) == empty


def test_a_failed_import_leaves_nothing(
    zkplan_client: Client, elsewhere: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Here the file is cut short after it was checked."""
    file = tmp_path / "plan"
    plan = zkplan_client.create_plan()
    plan.add_tasks([TaskSpec(len, ["four"]) for _ in range(1000)])
    export_plan(plan, file)
    elsewhere.prepare()
    before = tree(elsewhere.transport.client, elsewhere.root)
    check = moving.read_through

    def then_cut(*args: Any) -> Any:
        header = check(*args)
        lines = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
        file.write_bytes(gzip.compress(b"".join(lines[:-2])))
        return header

    monkeypatch.setattr(moving, "read_through", then_cut)
    with pytest.raises(PayloadUndecodable, match="cut short"):
        import_plan(elsewhere, file)
    assert tree(elsewhere.transport.client, elsewhere.root) == before


def test_a_file_signed_with_another_secret_is_refused_unless_asked_for(
    here: Here, there: Here, elsewhere: Client, tmp_path: Path
) -> None:
    with zkplan.connect(*here, secret=secret_of("s")) as client:
        plan = client.create_plan()
        task = plan.add_task(len, ["four"])
        export_plan(plan, tmp_path / "plan")
    with pytest.raises(PayloadUndecodable, match="secret-files"):
        import_plan(elsewhere, tmp_path / "plan")
    assert not elsewhere.transport.client.exists(elsewhere.root)
    import_plan(elsewhere, tmp_path / "plan", any_secret=True)
    with zkplan.connect(*there, secret=secret_of("s")) as client:
        found = client.plan(import_plan(client, tmp_path / "plan", copy=True))
        found.mark_ready()
        with working(*there, secret=secret_of("s")):
            assert found.task(task.number).result(30) == 4


def test_an_encrypted_file_needs_its_key_even_with_any_secret(
    here: Here, there: Here, elsewhere: Client, tmp_path: Path
) -> None:
    keys, file = tmp_path / "aes.keys", tmp_path / "plan"
    keys.touch(0o600)
    keys.write_text(new_key("ours", AES).to_line() + "\n")
    with zkplan.connect(*here, secret_files=[str(keys)]) as client:
        plan = client.create_plan()
        plan.add_task(len, ["four"])
        export_plan(plan, file)
    with zkplan.connect(*there, secret_files=[str(keys)]) as client:
        for any_secret in (True, False):
            import_plan(client, file, any_secret=any_secret, copy=True)
    with pytest.raises(PayloadUndecodable, match=r"without its key.*\(secret-files\)$"):
        import_plan(elsewhere, file, any_secret=True)
