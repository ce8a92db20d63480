"""The file of an exported plan is read back as it was written, and any damage is noticed."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from zkplan.author.export_file import ArchiveWriter, Header, open_archive
from zkplan.author.export_restore import Piece
from zkplan.author.export_snapshot import Znode, delayed_of
from zkplan.errors import PayloadUndecodable, ZkplanError
from zkplan.values.blobs import digest

HEADER = Header("nightly", "c0ffee", "paused", 2, 9, "/zkplan/plan-0000000003", 1.5)
ZNODES = [
    Znode("", b'{"name":"nightly"}'),
    Znode("task-0000000005", bytes(range(256))),
    Znode("task-0000000005/ready", b"2", 1),
    Znode("task-0000000005/arg-0000000000", "z1Vüñ".encode()),
    Znode("task-0000000005/started-1"),
    Znode("task-0000000007", b"two\nlines"),
    Znode("results/0000000007", b"x" * 50_000),
    Znode("runnable/5000-0000000007.0.0"),
    Znode("delayed/0000000001000-5000-0000000005.1.1"),
    Znode("add-count"),
    Znode("ready", b'{"state":"paused"}'),
]


def write(file: Path, znodes: list[Znode] = ZNODES) -> Path:
    with ArchiveWriter(file, HEADER) as writer:
        for znode in znodes:
            writer.add(znode)
        writer.finish()
    return file


def read(file: Path) -> tuple[Header, list[Znode | Piece]]:
    with open_archive(file) as (header, znodes):
        return header, list(znodes)


def refusal(file: Path) -> str:
    with pytest.raises(PayloadUndecodable) as caught:
        read(file)
    assert str(file) in str(caught.value)
    return str(caught.value)


def forged(file: Path, *lines: Any, head: dict[str, Any] | None = None) -> Path:
    """An archive whose checksum is right, whatever it says."""
    first = {"zkplan": "plan archive", "format": 3, **HEADER._asdict(), **(head or {})}
    body = b"".join(json.dumps(line).encode() + b"\n" for line in (first, *lines))
    end = {"end": "", "znodes": len(lines), "sha256": hashlib.sha256(body).hexdigest()}
    file.write_bytes(gzip.compress(body + json.dumps(end).encode() + b"\n"))
    return file


def test_a_written_file_is_read_back_unchanged(tmp_path: Path) -> None:
    assert read(write(tmp_path / "plan")) == (HEADER, ZNODES)


def test_each_line_of_a_file_is_json_that_names_its_kind(tmp_path: Path) -> None:
    lines = gzip.decompress(write(tmp_path / "plan").read_bytes()).splitlines()
    first, *_, last = map(json.loads, lines)
    assert first["zkplan"] == "plan archive"
    assert (first["format"], first["name"]) == (3, "nightly")
    assert last["znodes"] == len(ZNODES)
    assert last["sha256"] == hashlib.sha256(b"\n".join([*lines[:-1], b""])).hexdigest()


def test_equal_plans_give_equal_files(tmp_path: Path) -> None:
    assert write(tmp_path / "a").read_bytes() == write(tmp_path / "b").read_bytes()


def test_a_file_has_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    with ArchiveWriter(tmp_path / "plan", HEADER) as writer:
        writer.add(ZNODES[0])
        assert not (tmp_path / "plan").exists()
    assert os.listdir(tmp_path) == []


def test_a_file_created_during_the_export_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "plan"
    with ArchiveWriter(file, HEADER) as writer:
        file.write_text("precious")
        with pytest.raises(FileExistsError):
            writer.finish()
    assert file.read_text() == "precious"
    assert os.listdir(tmp_path) == ["plan"]


@pytest.mark.parametrize("part", [0, 1, 5, 100, -9, -1])
def test_a_truncated_file_is_refused(part: int, tmp_path: Path) -> None:
    file = write(tmp_path / "plan")
    file.write_bytes(file.read_bytes()[:part])
    refusal(file)


def test_a_file_without_its_last_line_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "plan")
    lines = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
    file.write_bytes(gzip.compress(b"".join(lines[:-1])))
    assert "cut short" in refusal(file)


@pytest.mark.parametrize("line", range(len(ZNODES) + 1))
def test_a_dropped_or_changed_line_is_noticed(line: int, tmp_path: Path) -> None:
    file = write(tmp_path / "plan")
    lines = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
    without = [*lines[:line], *lines[line + 1 :]]
    other = [*lines[:line], lines[line].replace(b"0", b"1", 1) + b"", *lines[line + 1 :]]
    for changed in (without, other):
        if changed != lines:
            file.write_bytes(gzip.compress(b"".join(changed)))
            refusal(file)


def test_each_flipped_byte_is_noticed(tmp_path: Path) -> None:
    file = write(tmp_path / "plan", ZNODES[:3])
    whole = file.read_bytes()
    header, znodes = read(file)
    for at in range(len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        try:
            found = read(file)
        except PayloadUndecodable:
            continue
        # Some bits of a compressed file, as in its own header, say nothing about what is in it.
        assert found == (header, znodes)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("a plan")
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(b'{"hello": "world"}\n'))
    binary = tmp_path / "binary"
    binary.write_bytes(gzip.compress(b"\xff\xfe" * 4_000_000))
    deep = tmp_path / "deep"
    deep.write_bytes(gzip.compress(b"[" * 100_000 + b"\n"))
    archive = tmp_path / "zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("plan", "{}")
    for file in (text, packed, binary, deep, archive):
        assert "not a plan exported by zkplan" in refusal(file)


def test_a_newer_format_is_refused_and_says_what_to_do(tmp_path: Path) -> None:
    assert "upgrade" in refusal(forged(tmp_path / "plan", head={"format": 4}))


def test_two_concatenated_files_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "plan")
    file.write_bytes(file.read_bytes() * 2)
    assert "data after its end" in refusal(file)


@pytest.mark.parametrize(
    "line",
    [
        {"znode": "../plan-0000000001/ready"},
        {"znode": "task-0000000005/../../x"},
        {"znode": "task-5"},
        {"znode": "runnable/anything"},
        {"znode": "task-0000000005\n"},
        {"znode": "task-0000000005/ready"},
        {"znode": 5},
        {"znode": "ready", "version": 3},
        {"znode": "add-count", "base64": "!"},
        {"znode": "add-count", "base64": 3},
        {"znode": "add-count", "text": [1]},
        {"other": "line"},
        [1],
    ],
    ids=str,
)
def test_a_line_that_no_export_writes_is_refused_even_if_the_checksum_fits(
    line: Any, tmp_path: Path
) -> None:
    refusal(forged(tmp_path / "plan", {"znode": "", "text": "{}"}, line))


@pytest.mark.parametrize("head", [{"creates": -1}, {"creates": "9"}, {"tasks": None}, {"uid": 1}])
def test_an_invalid_header_is_refused(head: dict[str, Any], tmp_path: Path) -> None:
    assert "header" in refusal(forged(tmp_path / "plan", head=head))


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(ZkplanError, match=r"absent cannot be read: No such file"):
        read(tmp_path / "absent")


def test_a_znode_that_does_not_belong_to_a_plan_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ZkplanError, match="which zkplan did not make"):
        write(tmp_path / "plan", [Znode("task-0000000005/a/b")])
    assert os.listdir(tmp_path) == []


def test_a_delayed_entry_gets_the_number_of_its_new_plan() -> None:
    found = delayed_of("delayed/0000000001000-5000-0000000005.1.1", "0000000042")
    assert found is not None
    assert (found.due_ms, found.plan, found.entry.name) == (
        1000,
        "0000000042",
        "5000-0000000005.1.1",
    )


BLOB = bytes(range(256)) * 20
NAME = f"0000000005.1-{digest([BLOB]).hex()}"


def packed_with(file: Path, *pieces: Piece) -> Path:
    with ArchiveWriter(file, HEADER) as writer:
        writer.add(ZNODES[0])
        for piece in pieces:
            writer.add_piece(piece)
        writer.add(ZNODES[1])
        writer.finish()
    return file


def test_blobs_are_read_in_pieces_before_the_znodes_that_follow(tmp_path: Path) -> None:
    pieces = [Piece(NAME, BLOB[:1000]), Piece(NAME, BLOB[1000:])]
    _, items = read(packed_with(tmp_path / "plan", *pieces))
    assert items == [ZNODES[0], *pieces, ZNODES[1]]


@pytest.mark.parametrize(
    "pieces",
    [
        [Piece(NAME, BLOB[:-1])],
        [Piece(NAME, BLOB[1000:]), Piece(NAME, BLOB[:1000])],
        [Piece(NAME, BLOB[:1000]), Piece(NAME[:-1] + "?", BLOB[1000:])],
        [Piece("../secret", BLOB)],
    ],
)
def test_a_blob_that_does_not_fit_its_name_is_refused(pieces: list[Piece], tmp_path: Path) -> None:
    assert "blob" in refusal(packed_with(tmp_path / "plan", *pieces))
