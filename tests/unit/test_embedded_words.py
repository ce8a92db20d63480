"""Four-letter words: what an administrator asks is answered under odd circumstances too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest

from zkplan.embedded.words import answer_word

NOBODY = cast("Any", None)


def test_envi_is_answered_from_a_deleted_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(FileNotFoundError):
        os.getcwd()
    answer = answer_word(b"envi", NOBODY)
    assert answer is not None
    assert b"user.dir=?\n" in answer
