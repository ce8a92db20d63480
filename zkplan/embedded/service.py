"""A whole server but for its sockets and its disk: requests of connections in, frames out.

Pure: the time is told by `tell_time`, frames for connections are collected in `out`, and what has
to be stored is in the changes of `tree` and `sessions`. Whoever runs it (server.py) lets nothing of
`out` leave before those changes are stored: an answer or an event tells of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Any, get_args

from zkplan.embedded import acl, wire, wire_answers
from zkplan.embedded import requests as ask
from zkplan.embedded.jute import MARSHALLING
from zkplan.embedded.limits import Limits
from zkplan.embedded.peer import Peer
from zkplan.embedded.reading import Reads
from zkplan.embedded.records import LimitError, MultiFailed, NoAuthError, Op, TreeError
from zkplan.embedded.sessions import PASSWORD_BYTES, Session, Sessions
from zkplan.embedded.tree import Tree

# Error codes that are no TreeError's.
UNIMPLEMENTED = -6
AUTH_FAILED = -115

# Strangers could fill the log: of many that are refused one is told of.
_TOLD_EVERY_MS = 10_000
# What is answered to those who have not logged in where a login is needed.
_OF_STRANGERS = frozenset((ask.AddAuth, ask.Ping, ask.CloseSession))


logger = logging.getLogger("zkplan.embedded")


class Service:
    """Answers requests in their order; every method appends to `out` what is to be sent.

    An entry of `out` is (peer, frame), or (peer, None): close the connection once all before is
    sent.
    """

    def __init__(
        self, tree: Tree, sessions: Sessions, limits: Limits, logins: Collection[str] = ()
    ) -> None:
        """Whoever proves none of `logins` (`user:password`) is refused everything. Without any,
        everybody is let in."""
        self.tree = tree
        self._let_in = {acl.digest_identity(login) for login in logins}
        self.sessions = sessions
        self.limits = limits
        self.out: list[tuple[Peer, bytes | None]] = []
        self.held_bytes = 0  # of the frames in `out`; whoever takes them sets it to 0
        self.received = 0
        self._now_ms = self._tell_again_ms = 0
        self._wall_ms = 0
        self._peers: dict[int, Peer] = {}  # by session
        self._reads = Reads(tree, limits.answer_bytes).handlers
        self._handlers: dict[type, Callable[[Peer, Any], Any]] = {
            **self._reads,
            **dict.fromkeys(get_args(Op), self._write),
            ask.Multi: self._multi,
            ask.SetWatches: lambda peer, request: tree.set_watches(request, peer),
            ask.AddWatch: lambda peer, request: tree.watches.arm_for_good(
                request.path, peer, recursive=request.recursive
            ),
            ask.RemoveWatches: lambda peer, request: tree.watches.remove(
                request.path, peer, request.kind, request.only_check
            ),
        }

    def tell_time(self, now_ms: int, wall_ms: int) -> None:
        """The time of what follows: of a clock that never goes back, and as znodes show it."""
        self._now_ms = now_ms
        self._wall_ms = wall_ms

    # Connections.

    def connect(self, peer: Peer, request: ask.ConnectRequest) -> None:
        """Answer the handshake: a new session, the old one, or that it has expired."""
        if request.last_zxid_seen > self.tree.zxid:
            # It knows of writes that this server has lost, or never had: another data folder, or an
            # older copy of this one. Silence and a closed connection send it to another server.
            self._close(peer)
            return
        peer.is_let_in = not self._let_in
        session = self._session_for(peer, request)
        answer: tuple[int, int, bytes] = 0, 0, bytes(PASSWORD_BYTES)
        if session is not None:
            peer.session, peer.session_id = session, session.id
            self._peers[session.id] = peer
            answer = session.timeout_ms, session.id, session.password
        with_last_byte = request.read_only is not None
        self._send(peer, wire_answers.connect_answer(*answer, with_last_byte=with_last_byte))
        if session is None:
            self._close(peer)

    def _session_for(self, peer: Peer, request: ask.ConnectRequest) -> Session | None:
        if not request.session:
            self.tree.advance()
            return self.sessions.create(request.timeout_ms, self._now_ms, self._wall_ms)
        session = self.sessions.attach(
            request.session, request.password, request.timeout_ms, self._now_ms
        )
        if session is not None:
            # The connection it had is of the past: what still arrives on it must not be answered.
            before = self._peers.get(session.id)
            if before is not None:
                self.disconnected(before)
                self._close(before)
        return session

    def disconnected(self, peer: Peer) -> None:
        """The connection is gone; its watches go with it, its session stays until it expires."""
        self.tree.watches.drop(peer)
        if peer.session is not None and self._peers.get(peer.session.id) is peer:
            del self._peers[peer.session.id]
        peer.session = None

    def expire(self) -> None:
        """End the sessions whose time is over."""
        for session in self.sessions.expired(self._now_ms):
            self._end_session(session)
            peer = self._peers.get(session.id)
            if peer is not None:
                self.disconnected(peer)
                self._close(peer)

    def sweep(self) -> bool:
        """Delete the containers that were left empty and the nodes whose time to live is over.

        Not all in one turn where they are very many: whether there may be more.
        """
        at_most = self.limits.sweep_nodes
        deleted = self.tree.sweep(self._wall_ms, at_most)
        self._send_events()
        return len(deleted) == at_most

    def tell(self, peer: Peer, frame: bytes) -> None:
        """Answer outside the protocol, once what is known so far is stored, and close."""
        self._send(peer, frame)
        self._close(peer)

    def _end_session(self, session: Session) -> None:
        self.sessions.end(session.id)
        self.tree.close_session(session.id, now_ms=self._wall_ms)
        self._send_events()

    # Requests.

    def handle(self, peer: Peer, frame: bytes) -> None:
        """Answer one request of a connection that has a session."""
        session = peer.session
        if session is None or peer.leaving:
            return  # what it sent behind the request that ended it
        session.deadline_ms = self._now_ms + session.timeout_ms
        session.forgiven_ms = 0
        peer.received += 1
        self.received += 1
        try:
            xid, request = wire.parse(frame)
        except wire.WireError as error:
            self._refuse_frame(peer, error)
            return
        kind = type(request)
        peer.last_request = kind.__name__
        if not peer.is_let_in and kind not in _OF_STRANGERS:
            self._refuse_stranger(peer, xid, request)
            return
        handler = self._handlers.get(kind)
        if handler is None:
            self._handle_rare(peer, xid, request)
            return
        try:
            answer = handler(peer, request)
        except TreeError as error:
            reply = wire_answers.error_reply(xid, self.tree.zxid, error.code)
        except MultiFailed as error:
            assert isinstance(request, ask.Multi)
            codes = wire_answers.refusal_codes(len(request.ops), error.index, error.error.code)
            reply = wire_answers.multi_error(xid, self.tree.zxid, codes)
        else:
            reply = wire_answers.reply(xid, self.tree.zxid, request, answer)
            # Not of a write: it is done.
            if len(reply) > self.limits.answer_bytes and kind in self._reads:
                reply = wire_answers.error_reply(xid, self.tree.zxid, LimitError.code)
        # Events first: whoever reads an answer has been told of every change that it may show.
        self._send_events()
        self._send(peer, reply)

    def _handle_rare(self, peer: Peer, xid: int, request: ask.Request) -> None:
        if isinstance(request, ask.Ping):
            # Its answer has the xid of pings, whatever the client sent.
            self._send(peer, wire_answers.error_reply(wire.PING_XID, self.tree.zxid, 0))
        elif isinstance(request, ask.AddAuth):
            identity = acl.authenticate(request.scheme, request.auth, peer.address)
            if identity is not None and len(peer.identities) < self.limits.identities:
                if identity not in peer.identities:
                    peer.identities += (identity,)
                peer.is_let_in = peer.is_let_in or identity in self._let_in
                self._send(peer, wire_answers.error_reply(xid, 0, 0))
            else:
                self._send(peer, wire_answers.error_reply(xid, 0, AUTH_FAILED))
                self._close(peer)
        elif isinstance(request, ask.CloseSession) and peer.session is not None:
            self._end_session(peer.session)
            self._send(peer, wire_answers.error_reply(xid, self.tree.zxid, 0))
            self._close(peer)
            self.disconnected(peer)
        elif isinstance(request, ask.Unsupported):
            # As a real server: an answer that is not of its log, and the end of the connection.
            self._send(peer, wire_answers.error_reply(xid, -1, UNIMPLEMENTED))
            self._close(peer)

    def _refuse_stranger(self, peer: Peer, xid: int, request: ask.Request) -> None:
        # As where an access list refuses: a client knows what is missing, and may log in yet.
        self._send(peer, wire_answers.error_reply(xid, self.tree.zxid, NoAuthError.code))
        if self._now_ms >= self._tell_again_ms:
            self._tell_again_ms = self._now_ms + _TOLD_EVERY_MS
            logger.warning(
                "refused a client at %s port %s, which has not logged in: %s %.200r",
                peer.address,
                peer.port,
                peer.last_request,
                getattr(request, "path", ""),
            )

    def _refuse_frame(self, peer: Peer, error: wire.WireError) -> None:
        if error.xid is None:
            self._close(peer)
            return
        if error.takes_zxid:
            self.tree.advance()
        self._send(peer, wire_answers.error_reply(error.xid, self.tree.zxid, MARSHALLING))

    def _send(self, peer: Peer, frame: bytes) -> None:
        peer.sent += 1
        peer.unsent_bytes += len(frame)
        self.held_bytes += len(frame)
        self.out.append((peer, frame))

    def _close(self, peer: Peer) -> None:
        peer.leaving = True
        self.out.append((peer, None))

    def _send_events(self) -> None:
        for event in self.tree.watches.take_events():
            watcher: Any = event.watcher
            self._send(watcher, wire_answers.event(event.kind, event.path))

    # One method for each kind of request; what it returns is encoded, what it raises is refused.

    def _write(self, peer: Peer, request: Any) -> Any:
        return self.tree.apply(
            request, session=peer.session_id, now_ms=self._wall_ms, who=peer.identities
        )

    def _multi(self, peer: Peer, request: ask.Multi) -> Any:
        return self.tree.multi(
            request.ops, session=peer.session_id, now_ms=self._wall_ms, who=peer.identities
        )
