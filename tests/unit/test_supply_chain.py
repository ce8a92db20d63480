"""Packages are pinned by version and digest, and ports are served only to this machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from zkplan.basics.profiles import _parsed

TOP = Path(__file__).resolve().parents[2]
PROJECT = _parsed((TOP / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
LOCKS = {
    "requirements.lock": [*PROJECT["dependencies"], *EXTRAS["service"], *EXTRAS["image"]],
    "requirements-dev.lock": [
        *PROJECT["dependencies"],
        *(each for of in EXTRAS.values() for each in of),
    ],
}


@pytest.mark.parametrize("lock", LOCKS)
def test_each_locked_package_has_a_digest_and_a_version_that_pyproject_allows(lock: str) -> None:
    text = (TOP / lock).read_text()
    assert "://" not in text, "where packages come from is the matter of each machine"
    assert "--index" not in text
    pinned = {}
    for block in re.split(r"(?m)^(?=[\w])", text.partition("\n")[2]):
        if found := re.match(
            r"([\w.-]+)==([\w.!+-]+) \\\n((?:    --hash=sha256:[0-9a-f]{64}.*\n?)+)", block
        ):
            pinned[re.sub(r"[-_.]+", "-", found[1]).lower()] = found[2]
        else:
            assert not block.strip(), block
    assert {"hatchling", "kazoo"} <= pinned.keys()
    for requirement in map(Requirement, LOCKS[lock]):
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name in pinned:
            assert requirement.specifier.contains(pinned[name], prereleases=True), requirement
        else:
            assert requirement.marker or name in ("zkplan", "s3fs", "pure-sasl"), requirement


def test_the_image_installs_what_is_locked_and_nothing_else() -> None:
    installs = re.findall(r"pip install (.*)", (TOP / "Dockerfile").read_text())
    assert len(installs) == 2
    assert "--require-hashes -r requirements.lock" in installs[0]
    assert "--no-deps --no-build-isolation ." in installs[1]


def test_the_ports_of_compose_are_open_only_to_this_machine() -> None:
    text = (TOP / "docker-compose.yml").read_text()
    ports = re.findall(r'ports: \["(.*?)"\]', text)
    assert text.count("ports:") == len(ports) == 3
    assert all(port.startswith("127.0.0.1:") for port in ports)
