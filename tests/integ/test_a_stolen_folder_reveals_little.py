"""What a thief can do with a copy of the folder of an embedded server."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import zkplan
from tests.tools.support import WAIT_S, note, notes, working
from zkplan.values.keyring import new_key

VALUE = "what only the team may read"


def run_one(address: str, **options: Any) -> tuple[str, str]:
    """Run one task whose result is kept. Returns the path of its plan, and its number."""
    with zkplan.connect(address, **options) as client, working(address, client.root, **options):
        with client.create_plan("ours") as plan:
            task = plan.add_task(str.upper, [VALUE], keep=True)
        assert task.result(WAIT_S) == VALUE.upper()
        return plan.path, task.number


def copied(folder: Path) -> tuple[str, bool]:
    """The address of the copy, and whether its files hold the value in plain text."""
    stolen = folder.with_name("stolen")
    shutil.copytree(folder, stolen)
    files = [file for file in stolen.rglob("*") if file.is_file()]
    texts = (VALUE.encode(), VALUE.upper().encode())
    return f"embedded:{stolen}", any(text in file.read_bytes() for file in files for text in texts)


def test_a_copy_of_a_folder_opens_with_the_key_of_the_folder(tmp_path: Path) -> None:
    path, number = run_one(f"embedded:{tmp_path / 'data'}")
    address, is_plain = copied(tmp_path / "data")
    assert is_plain
    with zkplan.connect(address) as thief:
        assert thief.plan(path).task(number).result(WAIT_S) == VALUE.upper()


@pytest.mark.parametrize("kind", ["secret", "aes"])
def test_a_copy_does_not_open_without_keys_and_tasks_added_to_it_do_not_run(
    kind: str, tmp_path: Path
) -> None:
    if kind == "aes":
        pytest.importorskip("cryptography")
    keys, file = tmp_path / "team.key", tmp_path / "ran"
    key = new_key("team", kind)
    keys.touch(0o600)
    keys.write_text(f"{key.id}:{kind}:{key.material.hex()}\n")
    options: dict[str, Any] = {"secret_files": [str(keys)]}
    path, number = run_one(f"embedded:{tmp_path / 'data'}", **options)
    address, is_plain = copied(tmp_path / "data")
    assert is_plain == (kind == "secret")  # who reads the tree reads what is not encrypted
    with zkplan.connect(address) as thief:
        with pytest.raises(zkplan.PayloadUndecodable, match="which is not known here"):
            thief.plan(path).task(number).result(WAIT_S)
        with thief.create_plan("forged") as plan:
            plan.add_task(note, [str(file), "ran"])
    # Restored, and used with the keys.
    with zkplan.connect(address, **options) as client, working(address, client.root, **options):
        with client.create_plan("again") as plan:
            task = plan.add_task(str.upper, [VALUE], keep=True)
        assert task.result(WAIT_S) == VALUE.upper()
        assert client.plan(path).task(number).result(WAIT_S) == VALUE.upper()
    assert notes(file) == []
