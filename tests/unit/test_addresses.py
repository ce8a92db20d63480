"""Addresses of an embedded server: what each means, and which are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from zkplan.errors import ZkplanError
from zkplan.transport.addresses import folder_of, is_embedded, require_data, server_at


@pytest.mark.parametrize("address", ["embedded:", "embedded: "])
def test_an_address_without_a_folder_means_a_server_in_memory(address: str) -> None:
    assert folder_of(address) is None


def test_the_folder_follows_the_colon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert folder_of("embedded:plans/of,mine") == tmp_path / "plans" / "of,mine"
    assert folder_of("embedded:./2181") == tmp_path / "2181"
    assert folder_of("embedded:~/plans") == tmp_path / "home" / "plans"
    assert folder_of("embedded:/a/../b") == Path("/b")


@pytest.mark.parametrize("address", ["embedded:2181", "embedded:2181/chroot"])
def test_an_address_that_may_mean_a_port_or_a_folder_is_refused(address: str) -> None:
    with pytest.raises(ZkplanError, match="could be a port or a folder"):
        server_at(address)


@pytest.mark.parametrize(
    "hosts", ["zk1:2181,embedded:", "embedded:,zk1:2181", "embedded:a,embedded:b", "a:1, embedded:"]
)
def test_other_hosts_beside_an_embedded_server_are_refused(hosts: str) -> None:
    with pytest.raises(ZkplanError, match="stands alone"):
        server_at(hosts)


@pytest.mark.parametrize(
    "hosts",
    ["embedded", "Embedded:", "EMBEDDED:plans", " embedded:", "embedded/team", "Embedded:1"],
)
def test_a_misspelt_embedded_address_is_not_looked_up_as_a_host(hosts: str) -> None:
    with pytest.raises(ZkplanError, match="write embedded: or embedded:FOLDER"):
        server_at(hosts)


@pytest.mark.parametrize("address", ["embedded:\0", "embedded:~nobody-of-this-name/plans"])
def test_an_impossible_folder_name_raises_an_error_of_zkplan(address: str) -> None:
    with pytest.raises(ZkplanError, match="names no folder"):
        server_at(address)


def test_a_read_only_command_refuses_an_address_without_data(tmp_path: Path) -> None:
    require_data("zk1:2181")
    with pytest.raises(ZkplanError, match="in the memory of this process"):
        require_data("embedded:")
    with pytest.raises(ZkplanError, match="does not exist"):
        require_data(f"embedded:{tmp_path}/missing")
    with pytest.raises(ZkplanError, match="holds no data"):
        require_data(f"embedded:{tmp_path}")


def test_hosts_of_an_ensemble_are_returned_unchanged() -> None:
    assert not is_embedded("zk1:2181,zk2:2181/team")
    with server_at("zk1:2181,zk2:2181/team") as found:
        assert found.hosts == "zk1:2181,zk2:2181/team"
