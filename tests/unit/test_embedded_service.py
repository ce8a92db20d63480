"""The embedded server without sockets: what is sent to whom, and in which order."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from zkplan.embedded.limits import Limits
from zkplan.embedded.peer import Peer
from zkplan.embedded.records import Acl, Create, Delete
from zkplan.embedded.requests import ConnectRequest
from zkplan.embedded.service import Service
from zkplan.embedded.sessions import Sessions
from zkplan.embedded.tree import Tree

EXISTS, GET_DATA, SET_DATA, CLOSE, AUTH = 3, 4, 5, -11, 100
CLOSED = "closed"


def service(**limits: int) -> Service:
    numbers = iter(range(1, 1000))
    sessions = Sessions(
        min_timeout_ms=100,
        max_timeout_ms=1000,
        make_password=lambda size: next(numbers).to_bytes(size, "big"),
    )
    tree = Tree(
        system_nodes=True,
        identities=lambda peer: peer.identities,  # type: ignore[attr-defined]
    )
    made = Service(tree, sessions, Limits()._replace(**limits))
    made.tell_time(1000, 5)
    return made


def connected(one: Service, request: ConnectRequest | None = None) -> Peer:
    peer = Peer("127.0.0.1", 1)
    one.connect(peer, request or ConnectRequest(0, 500, 0, bytes(16), False))
    return peer


def taken(one: Service) -> Iterator[tuple[Peer, tuple[int, ...] | str]]:
    """What is to be sent since the last call: (xid, zxid, error), or that it is to be closed."""
    out, one.out = one.out, []
    for peer, frame in out:
        if frame is None:
            yield peer, CLOSED
        else:
            assert len(frame) - 4 == int.from_bytes(frame[:4], "big")
            yield peer, struct.unpack_from(">iqi", frame, 4)


def call(xid: int, opcode: int, path: str = "", tail: bytes = b"") -> bytes:
    packed = struct.pack(">i", len(path)) + path.encode() if path else b""
    return struct.pack(">ii", xid, opcode) + packed + tail


def set_data(xid: int, path: str) -> bytes:
    return call(xid, SET_DATA, path, struct.pack(">ii", 0, -1))


def test_a_session_takes_a_zxid_and_attaching_to_it_none() -> None:
    one = service()
    peer = connected(one)
    assert one.tree.zxid == 1
    assert peer.session is not None
    again = ConnectRequest(1, 500, peer.session.id, peer.session.password, False)
    other = connected(one, again)
    assert one.tree.zxid == 1
    assert other.session is not None
    assert peer.session is None


def test_events_are_sent_before_the_answer_of_the_write_that_fired_them() -> None:
    one = service()
    writer, watcher = connected(one), connected(one)
    one.tree.apply(Create("/a"))
    one.handle(watcher, call(1, GET_DATA, "/a", b"\x01"))
    one.handle(writer, call(1, GET_DATA, "/a", b"\x01"))
    one.out.clear()
    one.handle(writer, set_data(2, "/a"))
    zxid = one.tree.zxid
    assert list(taken(one)) == [
        (watcher, (-1, -1, 0)),
        (writer, (-1, -1, 0)),
        (writer, (2, zxid, 0)),
    ]


def test_a_refused_write_is_answered_with_its_own_zxid() -> None:
    one = service()
    peer = connected(one)
    one.out.clear()
    one.handle(peer, set_data(7, "/nowhere"))
    assert list(taken(one)) == [(peer, (7, 2, -101))]


def test_a_frame_without_a_number_closes_and_a_malformed_one_is_answered() -> None:
    one = service()
    peer = connected(one)
    one.out.clear()
    one.handle(peer, call(3, GET_DATA, "/a"))  # without its last byte
    assert list(taken(one)) == [(peer, (3, 1, -5))]
    one.handle(peer, set_data(4, "/a")[:-1])  # a write takes a zxid all the same
    assert list(taken(one)) == [(peer, (4, 2, -5))]
    one.handle(peer, b"\0\0\0")
    assert list(taken(one)) == [(peer, CLOSED)]
    one.handle(peer, set_data(5, "/"))
    assert list(taken(one)) == []


def test_closing_a_session_tells_others_before_the_answer_and_ignores_the_rest() -> None:
    one = service()
    owner, watcher = connected(one), connected(one)
    assert owner.session is not None
    one.tree.apply(Create("/e", ephemeral=True), session=owner.session.id)
    one.handle(watcher, call(1, EXISTS, "/e", b"\x01"))
    one.out.clear()
    one.handle(owner, call(9, CLOSE))
    one.handle(owner, set_data(10, "/"))
    expected = [(watcher, (-1, -1, 0)), (owner, (9, one.tree.zxid, 0)), (owner, CLOSED)]
    assert list(taken(one)) == expected
    assert len(one.sessions) == 1


def test_expiry_ends_the_session_its_ephemerals_and_its_connection() -> None:
    one = service()
    owner, watcher = connected(one), connected(one)
    assert owner.session is not None
    one.tree.apply(Create("/e", ephemeral=True), session=owner.session.id)
    one.tell_time(1400, 5)
    one.handle(watcher, call(1, EXISTS, "/e", b"\x01"))
    one.out.clear()
    one.tell_time(1501, 5)
    one.expire()
    assert list(taken(one)) == [(watcher, (-1, -1, 0)), (owner, CLOSED)]
    assert owner.session is None
    assert len(one.sessions) == 1  # type: ignore[unreachable]  # mypy does not see the change


def test_a_peer_that_is_gone_has_no_watches_and_keeps_its_session() -> None:
    one = service()
    peer, other = connected(one), connected(one)
    one.handle(peer, call(1, EXISTS, "/a", b"\x01"))
    one.disconnected(peer)
    one.out.clear()
    one.tree.apply(Create("/a"))
    one.handle(other, call(1, GET_DATA, "/", b"\x00"))
    assert [to for to, _ in taken(one)] == [other]
    assert len(one.sessions) == 2


def test_the_late_end_of_an_old_connection_does_not_hurt_the_new_one() -> None:
    one = service()
    old = connected(one)
    assert old.session is not None
    new = connected(one, ConnectRequest(0, 500, old.session.id, old.session.password, None))
    one.handle(new, call(1, EXISTS, "/a", b"\x01"))
    one.disconnected(old)
    one.out.clear()
    one.handle(new, call(2, GET_DATA, "/", b"\x00"))
    assert list(taken(one)) == [(new, (2, one.tree.zxid, 0))]
    one.tell_time(2000, 5)
    one.expire()
    assert (new, CLOSED) in list(taken(one))


def test_a_failed_proof_of_identity_is_answered_and_ends_the_connection() -> None:
    one = service()
    peer = connected(one)
    one.out.clear()
    proof = struct.pack(">ii", 0, 8) + b"kerberos" + struct.pack(">i", 1) + b"x"
    one.handle(peer, struct.pack(">ii", -4, AUTH) + proof)
    assert list(taken(one)) == [(peer, (-4, 0, -115)), (peer, CLOSED)]
    assert len(one.sessions) == 1


def test_a_list_is_asked_when_the_event_fires_and_not_when_the_watch_is_armed() -> None:
    one = service()
    peer = connected(one)
    one.handle(peer, call(1, EXISTS, "/a", b"\x01"))
    one.out.clear()
    one.tree.apply(Create("/a", acl=(Acl(31, "digest", "ann:x"),)))
    one.sweep()
    assert list(taken(one)) == []
    one.handle(peer, call(2, EXISTS, "/b", b"\x01"))
    one.out.clear()
    one.tree.apply(Create("/b"))
    one.tree.apply(Delete("/b"))
    one.sweep()
    assert list(taken(one)) == [(peer, (-1, -1, 0))]


def test_a_word_is_told_in_its_turn_and_nothing_after_it() -> None:
    one = service()
    peer, asking = connected(one), Peer("127.0.0.1", 2)
    one.out.clear()
    one.handle(peer, set_data(1, "/"))
    one.tell(asking, b"imok")
    assert one.out[1:] == [(asking, b"imok"), (asking, None)]
    assert asking.leaving


def test_what_waits_for_the_commit_is_counted() -> None:
    one = service()
    peer = connected(one)
    one.handle(peer, set_data(1, "/"))
    assert one.held_bytes == sum(len(frame or b"") for _, frame in one.out) > 0


def test_a_sweep_stops_after_some_and_says_whether_there_is_more() -> None:
    one = service(sweep_nodes=3)
    for number in range(7):
        one.tree.apply(Create(f"/t{number}", ttl_ms=1), now_ms=0)
    assert [one.sweep() for _ in range(4)] == [True, True, False, False]
    assert one.tree.exists("/t6") is None
