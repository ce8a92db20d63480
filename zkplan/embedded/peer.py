"""The other end of one connection, as the service knows it."""

from __future__ import annotations

from zkplan.embedded.records import Identity
from zkplan.embedded.sessions import Session


class Peer:
    """One connection: who it has proven to be, its session, and what it has done so far."""

    __slots__ = (
        "address",
        "identities",
        "is_let_in",
        "last_request",
        "leaving",
        "port",
        "received",
        "sent",
        "session",
        "session_id",
        "unsent_bytes",
    )

    def __init__(self, address: str, port: int) -> None:
        self.address = address
        self.port = port
        self.identities: tuple[Identity, ...] = (Identity("ip", address),)
        self.is_let_in = False  # whether it may ask anything besides
        self.session: Session | None = None
        self.session_id = 0  # stays when the session has ended
        self.leaving = False  # no request is answered any more
        self.unsent_bytes = 0  # of frames for it that wait for the commit
        self.received = 0
        self.sent = 0
        self.last_request = "NA"
