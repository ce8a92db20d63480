"""The tests of kazoo that are left out, each with its reason."""

from __future__ import annotations

from importlib.util import find_spec

_CLUSTER = "needs several servers: this one is alone"
_RECONFIG = "reconfig changes the members of an ensemble: this server is alone"
_TLS = "needs TLS with Java's keystores: this server has none"
_SASL = "needs SASL, which a server does with Java's login modules"
_MISSED = (
    "waits until nobody holds the lock, and for ever where the next one has it by the next look: "
    "on ZooKeeper too, if the test is held up for 0.5 s at each release"
)

#: By file, class and name.
SKIPPED: dict[str, str] = {
    "test_build.py::TestBuildEnvironment::test_zookeeper_version": "about kazoo's own build",
    "test_client.py::TestClient::test_update_host_list": _CLUSTER,
    "test_client.py::TestSSLClient::test_create": _TLS,
    "test_client.py::TestReconfig::test_no_super_auth": _RECONFIG,
    "test_client.py::TestReconfig::test_add_remove_observer": _RECONFIG,
    "test_client.py::TestReconfig::test_bad_input": _RECONFIG,
    "test_lock.py::KazooLockTests::test_lock": _MISSED,
    "test_lock.py::KazooLockTests::test_rw_lock": _MISSED,
    "test_gevent_handler.py::TestGeventClient::test_update_host_list": _CLUSTER,
    "test_eventlet_handler.py::TestEventletClient::test_update_host_list": _CLUSTER,
    "test_connection.py::TestReadOnlyMode::test_read_only": _CLUSTER,
    "test_sasl.py::TestLegacySASLDigestAuthentication::test_connect_sasl_auth": _SASL,
    "test_sasl.py::TestLegacySASLDigestAuthentication::test_invalid_sasl_auth": _SASL,
    "test_sasl.py::TestSASLDigestAuthentication::test_connect_sasl_auth": _SASL,
    "test_sasl.py::TestSASLDigestAuthentication::test_invalid_sasl_auth": _SASL,
    "test_sasl.py::TestSASLGSSAPIAuthentication::test_connect_gssapi_auth": _SASL,
    "test_sasl.py::TestSASLGSSAPIAuthentication::test_invalid_gssapi_auth": _SASL,
}
#: The suite leaves these out itself where the package that they are about is not installed.
OPTIONAL: dict[str, str] = {
    "test_gevent_handler.py::": "gevent",
    "test_eventlet_handler.py::": "eventlet",
    "test_utils.py::TestCreateTCPConnection::test_timeout_arg_eventlet": "eventlet",
}


def may_be_skipped(name: str) -> bool:
    """Whether a test is on one of the two lists; on the second while its package is missing."""
    return name in SKIPPED or any(
        name.startswith(prefix) and find_spec(package) is None
        for prefix, package in OPTIONAL.items()
    )
