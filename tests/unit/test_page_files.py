"""The files of the page are small, load nothing from elsewhere, and make no markup out of text."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "zkplan" / "service" / "page"
ASSETS = PAGE / "assets"
OWN = [
    path
    for path in sorted(PAGE.rglob("*"))
    if path.suffix in (".html", ".js", ".css", ".svg") and ASSETS / "vendor" not in path.parents
]
LINES_MAX = 400
#: Functions that make markup or code out of a text.
UNSAFE = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc|"
    r"javascript:"
)
#: Inline scripts and styles, which the policy of the service refuses.
INLINE = re.compile(r"<style|<script(?![^>]* src=)|\sstyle=\"|\son[a-z]+=\"")
ADDRESS = re.compile(r"https?://[^\s\"'`)]+")
#: Each vendored file with the beginning of its SHA-256: a change is meant, and written down.
VENDORED = {
    "dagre/dagre.js": "cf85ac740ad206f0",
    "htm/htm.js": "ab33dd3f38059b9b",
    "preact/hooks.js": "5c65ab263688d080",
    "preact/preact.js": "225d7a773766e6fb",
    "uplot/uplot.css": "df630c6a8d6f8eea",
    "uplot/uplot.js": "8301d1a4fcc08355",
}


def name_of(path: Path) -> str:
    return path.relative_to(PAGE).as_posix()


@pytest.mark.parametrize("path", OWN, ids=name_of)
def test_a_file_of_the_page_keeps_the_rules(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LINES_MAX
    assert UNSAFE.findall(text) == []
    assert set(ADDRESS.findall(text)) <= {"http://www.w3.org/2000/svg"}
    if path.suffix == ".html":
        assert INLINE.findall(text) == []
    if path.suffix == ".js":
        assert text.startswith("// "), "it begins with a sentence that says what it is"


@pytest.mark.parametrize("path", [path for path in OWN if path.suffix == ".js"], ids=name_of)
def test_a_module_of_the_page_imports_only_existing_files(path: Path) -> None:
    imported = re.findall(r'(?:from|new URL\() ?"(\.[^"]+)"', path.read_text(encoding="utf-8"))
    for name in imported:
        assert (path.parent / name).is_file(), name


def test_the_vendored_files_match_their_list() -> None:
    vendor = ASSETS / "vendor"
    found = {
        path.relative_to(vendor).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for path in vendor.rglob("*")
        if path.suffix in (".js", ".css")
    }
    assert found == VENDORED
    told = (vendor / "README.md").read_text(encoding="utf-8")
    for name in found:
        library = name.partition("/")[0]
        assert (vendor / library / "LICENSE").is_file()
        assert re.search(rf"\[{library}\]\(https://[^)]+\) \| [\d.]+ \|", told, re.IGNORECASE)
