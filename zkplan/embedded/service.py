"""A whole server without sockets and disk: requests in, frames out.

Pure: `set_time` passes the time, and `out` collects the frames for connections. The caller
(server.py) stores the changes of `tree` and `sessions` before it sends anything of `out`, because
answers and events reveal those changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, get_args

from . import acl, wire
from . import operations as ask
from .jute import MARSHALLING, WireError
from .limits import Limits
from .operations import Acl, LimitError, MultiFailed, NoAuthError, Op, TreeError
from .sessions import PASSWORD_BYTES, Peer, Session, Sessions
from .tree import Tree

# Error codes without a TreeError.
UNIMPLEMENTED = -6
AUTH_FAILED = -115

# Strangers could fill the log, so at most one refusal in this time is logged.
_LOG_EVERY_MS = 10_000
# The requests that a client may make before it logs in to a closed server.
_OF_STRANGERS = frozenset((ask.AddAuth, ask.Ping, ask.CloseSession))


logger = logging.getLogger("zkplan.embedded")


class Service:
    """Answers requests in their order. Each method appends the frames to send to `out`.

    An entry of `out` is (peer, frame), or (peer, None) to close the connection at that point.
    """

    def __init__(
        self, tree: Tree, sessions: Sessions, limits: Limits, logins: Collection[str] = ()
    ) -> None:
        """With `logins` (each `user:password`), serve only clients that have logged in with one of
        them. Without, serve every client."""
        self.tree = tree
        self._let_in = {acl.digest_identity(login) for login in logins}
        self.sessions = sessions
        self.limits = limits
        self.out: list[tuple[Peer, bytes | None]] = []
        self.held_bytes = 0  # of the frames in `out`; whoever takes the frames resets this
        self.received = 0
        self._now_ms = self._log_again_ms = 0
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

    def set_time(self, now_ms: int, wall_ms: int) -> None:
        """Set the time for the next calls: `now_ms` is monotonic, `wall_ms` goes into znodes."""
        self._now_ms = now_ms
        self._wall_ms = wall_ms

    # Connections.

    def connect(self, peer: Peer, request: ask.ConnectRequest) -> None:
        """Answer the handshake: with a new session, with the old one, or that it has expired."""
        if request.last_zxid_seen > self.tree.zxid:
            # The client has seen writes that this server lost or never had: this is another data
            # folder, or an older copy. Closing without an answer sends it to another server.
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
        self._send(peer, wire.connect_answer(*answer, with_last_byte=with_last_byte))
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
            # Do not answer requests that still arrive on the previous connection of the session.
            before = self._peers.get(session.id)
            if before is not None:
                self.disconnected(before)
                self._close(before)
        return session

    def disconnected(self, peer: Peer) -> None:
        """Forget a closed connection and its watches. The session stays until it expires."""
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
        """Delete empty containers and nodes whose time to live is over, at most
        `limits.sweep_nodes` of them. Returns whether there may be more."""
        at_most = self.limits.sweep_nodes
        deleted = self.tree.sweep(self._wall_ms, at_most)
        self._send_events()
        return len(deleted) == at_most

    def send_last(self, peer: Peer, frame: bytes) -> None:
        """Send `frame` as it is, after all requests handled so far are stored, and close."""
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
            return  # the client sent this after the request that ended the connection
        session.deadline_ms = self._now_ms + session.timeout_ms
        session.forgiven_ms = 0
        peer.received += 1
        self.received += 1
        try:
            xid, request = wire.parse(frame)
        except WireError as error:
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
            reply = wire.error_reply(xid, self.tree.zxid, error.code)
        except MultiFailed as error:
            assert isinstance(request, ask.Multi)
            codes = wire.refusal_codes(len(request.ops), error.index, error.error.code)
            reply = wire.multi_error(xid, self.tree.zxid, codes)
        else:
            reply = wire.reply(xid, self.tree.zxid, request, answer)
            # Never refuse the answer to a write, which is already applied.
            if len(reply) > self.limits.answer_bytes and kind in self._reads:
                reply = wire.error_reply(xid, self.tree.zxid, LimitError.code)
        # Events first: a client gets the event of a change before an answer that shows it.
        self._send_events()
        self._send(peer, reply)

    def _handle_rare(self, peer: Peer, xid: int, request: ask.Request) -> None:
        if isinstance(request, ask.Ping):
            # The answer has the xid of pings, even if the client sent another xid.
            self._send(peer, wire.error_reply(wire.PING_XID, self.tree.zxid, 0))
        elif isinstance(request, ask.AddAuth):
            identity = acl.authenticate(request.scheme, request.auth, peer.address)
            if identity is not None and len(peer.identities) < self.limits.identities:
                if identity not in peer.identities:
                    peer.identities += (identity,)
                peer.is_let_in = peer.is_let_in or identity in self._let_in
                self._send(peer, wire.error_reply(xid, 0, 0))
            else:
                self._send(peer, wire.error_reply(xid, 0, AUTH_FAILED))
                self._close(peer)
        elif isinstance(request, ask.CloseSession) and peer.session is not None:
            self._end_session(peer.session)
            self._send(peer, wire.error_reply(xid, self.tree.zxid, 0))
            self._close(peer)
            self.disconnected(peer)
        elif isinstance(request, ask.Unsupported):
            # As a real server does: an answer without a zxid, and the end of the connection.
            self._send(peer, wire.error_reply(xid, -1, UNIMPLEMENTED))
            self._close(peer)

    def _refuse_stranger(self, peer: Peer, xid: int, request: ask.Request) -> None:
        # Answer as if an access list refused: the client learns why, and can still log in.
        self._send(peer, wire.error_reply(xid, self.tree.zxid, NoAuthError.code))
        if self._now_ms >= self._log_again_ms:
            self._log_again_ms = self._now_ms + _LOG_EVERY_MS
            logger.warning(
                "refused a client at %s port %s which has not logged in: %s %.200r",
                peer.address,
                peer.port,
                peer.last_request,
                getattr(request, "path", ""),
            )

    def _refuse_frame(self, peer: Peer, error: WireError) -> None:
        if error.xid is None:
            self._close(peer)
            return
        if error.takes_zxid:
            self.tree.advance()
        self._send(peer, wire.error_reply(error.xid, self.tree.zxid, MARSHALLING))

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
            self._send(watcher, wire.event(event.kind, event.path))

    # Handlers return the answer, to be encoded, or raise an error that refuses the request.

    def _write(self, peer: Peer, request: Any) -> Any:
        return self.tree.apply(
            request, session=peer.session_id, now_ms=self._wall_ms, who=peer.identities
        )

    def _multi(self, peer: Peer, request: ask.Multi) -> Any:
        return self.tree.multi(
            request.ops, session=peer.session_id, now_ms=self._wall_ms, who=peer.identities
        )


# ---- Reads, which are refused if their answer would be too large.
#
# A small request may ask for any multiple of the tree: children with long names, or one large node
# a thousand times. So a cheap bound measures each answer before it becomes bytes, and before a
# watch is armed, because a refused client does not expect an event.


# The maximum size of the parts around the content of an answer: headers, counts, a Stat.
_AROUND_BYTES = 128
_ERROR_BYTES = 13
# A character has up to four bytes, and four bytes before a text hold its length.
_CHARACTER_BYTES, _LENGTH_BYTES = 4, 4

_Read = ask.GetData | ask.GetChildren


class Reads:
    """The reads of one server. If an answer has more than `answer_bytes`, they raise LimitError."""

    def __init__(self, tree: Tree, answer_bytes: int) -> None:
        self._tree = tree
        self._answer_bytes = answer_bytes
        #: The handlers by kind of request. Each returns the answer or raises a TreeError.
        self.handlers: dict[type, Callable[[Peer, Any], Any]] = {
            ask.GetData: self.get_data,
            ask.Exists: self.exists,
            ask.GetChildren: self.get_children,
            ask.GetAcl: self.get_acl,
            ask.MultiRead: self.multi_read,
            ask.Sync: lambda _, request: request.path,
            ask.GetEphemerals: self.get_ephemerals,
            ask.CountDescendants: lambda peer, request: tree.count_descendants(
                request.path, peer.identities
            ),
            ask.WhoAmI: lambda peer, _: peer.identities,
        }

    def get_data(self, peer: Peer, request: ask.GetData) -> Any:
        return self._tree.get(request.path, peer if request.watch else None, peer.identities)

    def exists(self, peer: Peer, request: ask.Exists) -> Any:
        return self._tree.exists(request.path, peer if request.watch else None)

    def get_children(self, peer: Peer, request: ask.GetChildren) -> Any:
        path, watcher = request.path, peer if request.watch else None
        if self._is_tree_small():
            return self._tree.children(path, watcher, peer.identities)
        answer = self._tree.children(path, None, peer.identities)
        self._judge_texts(path, answer[0])
        if watcher is not None:
            self._tree.watches.arm_child(path, watcher)
        return answer

    def get_acl(self, peer: Peer, request: ask.GetAcl) -> Any:
        answer = self._tree.get_acl(request.path, peer.identities)
        self._judge(request.path, _size_of_acl(answer[0]))
        return answer

    def multi_read(self, peer: Peer, request: ask.MultiRead) -> Any:
        answers: list[Any] = []
        size = 0
        # Do and measure equal reads once: a short request may name a long list many times.
        known: dict[_Read, tuple[Any, int]] = {}
        for read in request.reads:
            found = known.get(read)
            if found is None:
                found = known[read] = self._read(peer, read)
            answers.append(found[0])
            size += found[1]
            self._judge(read.path, size)
        return answers

    def _read(self, peer: Peer, read: _Read) -> tuple[Any, int]:
        """Return the answer or the refusal of one read, and the maximum of its bytes."""
        try:
            if isinstance(read, ask.GetData):
                found = self._tree.get(read.path, None, peer.identities)
                return found, len(found[0]) + _AROUND_BYTES
            listed = self._tree.children(read.path, None, peer.identities)
            return listed, _size_of_texts(listed[0]) + _AROUND_BYTES
        except TreeError as error:
            return error, _ERROR_BYTES

    def get_ephemerals(self, peer: Peer, request: ask.GetEphemerals) -> Any:
        prefix = "" if request.prefix.strip() in {"", "/"} else request.prefix
        owned = self._tree.ephemerals(peer.session_id)
        paths = sorted(path for path in owned if path.startswith(prefix))
        self._judge_texts(request.prefix, paths)
        return paths

    def _is_tree_small(self) -> bool:
        # Measuring ten thousand names takes much of the time of the whole answer. All paths of a
        # small tree fit into one answer, so skip the measuring there.
        bytes_at_most = (_CHARACTER_BYTES + _LENGTH_BYTES) * self._tree.znodes.bytes
        return bytes_at_most + _AROUND_BYTES <= self._answer_bytes

    def _judge_texts(self, path: str, texts: Sequence[str]) -> None:
        # Try a cheap bound first: measuring a huge list exactly costs half as much as the answer.
        at_most = _CHARACTER_BYTES * sum(map(len, texts)) + _LENGTH_BYTES * len(texts)
        if at_most + _AROUND_BYTES > self._answer_bytes:
            self._judge(path, _size_of_texts(texts))

    def _judge(self, path: str, size: int) -> None:
        if size + _AROUND_BYTES > self._answer_bytes:
            raise LimitError(path)


def _size_of_texts(texts: Sequence[str]) -> int:
    if all(map(str.isascii, texts)):
        return sum(map(len, texts)) + _LENGTH_BYTES * len(texts)
    return sum(_size_of_text(text) for text in texts)


def _size_of_text(text: str) -> int:
    return _LENGTH_BYTES + len(text) * (1 if text.isascii() else _CHARACTER_BYTES)


def _size_of_acl(entries: Iterable[Acl]) -> int:
    return sum(4 + _size_of_text(entry.scheme) + _size_of_text(entry.id) for entry in entries)
