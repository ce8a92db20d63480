"""A port given to a process is given to no other while that process lives."""

from __future__ import annotations

import subprocess
import sys

import pytest

from zkplan.testing import server_process as loopback

ASK = (
    "import sys; from zkplan.testing import server_process as loopback; "
    "loopback._PORTS = range(*map(int, sys.argv[1:])) or loopback._PORTS; "
    "print(loopback.free_port())"
)


def asked_elsewhere(*ports: int) -> subprocess.CompletedProcess[str]:
    """What another process is given of that range, or of all."""
    command = [sys.executable, "-c", ASK, *map(str, ports or (0, 0))]
    return subprocess.run(command, capture_output=True, text=True)


def test_another_process_is_not_given_a_port_on_which_nothing_listens() -> None:
    port = loopback.free_port()
    refused = asked_elsewhere(port, port + 1)
    assert "no free port" in refused.stderr


def test_a_port_is_free_again_when_its_process_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    port = int(asked_elsewhere().stdout)
    monkeypatch.setattr(loopback, "_PORTS", range(port, port + 1))
    assert loopback.free_port() == port
    with pytest.raises(OSError, match="no free port"):
        loopback.free_port()
