"""Changed bytes require a new format, and other formats are refused with a clear message."""

from __future__ import annotations

import ast
import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from zkplan.author.export_file import open_archive
from zkplan.errors import OtherFormat
from zkplan.protocol.fields import from_json
from zkplan.protocol.formats import ENVELOPE
from zkplan.protocol.history.segments import body_of
from zkplan.protocol.records import PlanRecord
from zkplan.values import blobs as blob
from zkplan.values.codec import Codec
from zkplan.values.keyring import Ring, new_key
from zkplan.values.store_maintenance import part_from_bytes

from . import golden

PART = "history-0000000003-0000000003-9-" + "0" * 32


def test_changed_bytes_require_another_format() -> None:
    for name, text in golden.made().items():
        file = golden.FILES / name
        assert file.exists(), f"{name} is missing: write it with `{golden.COMMAND}`"
        before, after = file.read_text().splitlines(), text.splitlines()
        changed = [line for line in after if line not in before][:3]
        assert before == after, (
            f"the bytes that {name} shows have changed, such as {changed}. Another zkplan would "
            "take them for damage: raise the format in zkplan/protocol/formats.py, then write the "
            f"golden files with `{golden.COMMAND}`. If no release has had this format, write them "
            "alone."
        )


def old(name: str) -> list[str]:
    return (golden.FILES / name).read_text().splitlines()


def test_each_payload_of_an_earlier_format_is_refused_with_a_clear_message() -> None:
    for number, name in enumerate(("payloads-z1.txt", "payloads-e2.txt"), 1):
        words = rf"an older zkplan \(format {number}; this one reads 3\)"
        for line in old(name):
            payload = ast.literal_eval(line.partition(": b")[2].join(("b", "")))
            if payload.startswith(ENVELOPE[:1]) or number == 1:  # the name of a kind has none
                with pytest.raises(OtherFormat, match=words):
                    Codec().open(b"TVELG", payload)


def test_an_exported_plan_of_an_earlier_format_is_refused_with_a_reason(tmp_path: Path) -> None:
    file = tmp_path / "old"
    file.write_bytes(gzip.compress("\n".join((*old("archive-2.txt"), "")).encode()))
    with (
        pytest.raises(OtherFormat, match=r"old was written by an older zkplan \(format 2; this"),
        open_archive(file),
    ):
        pass


REFUSED: dict[str, Callable[[], object]] = {
    "plan record": lambda: PlanRecord.from_bytes(b'{"format":9}'),
    "format that is no number": lambda: PlanRecord.from_bytes(b'{"format":"9"}'),
    "envelope": lambda: Codec().open(b"V", b"e9V" + bytes(20)),
    "sealed": lambda: Ring([new_key("k")], b"r").open(b"p", b"z9H" + bytes(40)),
    "sealed record without a key": lambda: from_json(b"z9H" + bytes(40), "a plan record"),
    "history": lambda: body_of(b"h9j[]"),
    "part of a history": lambda: part_from_bytes(PART, b"zkh900000002{}"),
    "blob": lambda: blob.decode(b"zkb9" + bytes(20)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_later_format_asks_for_an_upgrade(what: str) -> None:
    with pytest.raises(OtherFormat, match=r"a newer zkplan \(format .*\): upgrade this one"):
        REFUSED[what]()
