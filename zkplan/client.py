"""The entry point for users: connect, create plans, and find them again."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import archive
from .connection import DEFAULT_ROOT, Connection
from .errors import InvalidTask, PlanError, PlanNotFound
from .functions.definition import check_options, check_plan_name
from .inspection.roots import hint_at_root
from .inspection.workers import living_workers
from .plan import Plan
from .protocol.author import create_plan, ensure_root
from .protocol.look import plan_records, readable_record
from .protocol.records import OnFailure, PlanRecord, TaskOptions, WorkerRecord
from .protocol.requests import ReadData
from .serialization.codec import Codec
from .store.files import INLINE_LIMIT, Store
from .tracebacks import told_to_caller
from .transport import open_transport
from .transport.addresses import Lease, folder_of, is_embedded, lease

if TYPE_CHECKING:
    from kazoo.client import KazooClient

DEFAULT_HOSTS = "127.0.0.1:2181"


class Client(Connection):
    """A connection to the plans under one root. It is thread-safe, and a context manager.

    Do not use it in a signal handler. The handler may interrupt a request of the same thread, and
    would then wait for that request for ever. A handler may raise, or set an event that another
    thread waits for.
    """

    #: The server that `close` releases.
    _server: Lease | None = None

    @told_to_caller
    def create_plan(
        self,
        name: str | None = None,
        *,
        attempts: int = 3,
        retry_delay: float = 1.0,
        timeout: float | None = None,
        priority: int = 0,
        keep: bool | None = None,
        pure: bool = False,
        on_failure: OnFailure = "hold",
    ) -> Plan:
        """Create an empty plan. The options are the defaults for its tasks; see `Plan.add_task`.

        `on_failure` says what happens when a task is out of attempts. With "hold" the task is kept
        as dead and its dependents wait until `retry` gives it more attempts. With "cascade" its
        dependents fail too, and the plan drains.

        Raises InvalidTask for an option or a name out of range.
        """
        defaults = TaskOptions("", attempts, retry_delay, timeout, priority, keep, pure)
        check_options(defaults, "the plan's defaults")
        if on_failure not in ("hold", "cascade"):
            raise InvalidTask("", f'on_failure must be "hold" or "cascade", not {on_failure!r}')
        check_plan_name(name)
        record = PlanRecord(name or "", os.urandom(12).hex(), time.time(), defaults, on_failure)
        number = self.transport.run(create_plan(self.paths, record))
        return Plan(self, self.paths.plan(number), record, new=True)

    def plans(self) -> list[Plan]:
        """All plans under the root, oldest first."""
        found = self.transport.run(plan_records(self.paths))
        return [Plan(self, path, record) for path, record in found]

    @told_to_caller
    def plan(self, which: str | int, *, only: bool = False) -> Plan:
        """Find a plan by its path, number, or name. Raises PlanNotFound.

        If several plans have the name, the newest one is returned. With `only`, such a name raises
        PlanError, which lists their numbers.
        """
        text = str(which).removeprefix("plan-")
        if text.startswith("/"):
            path = text
        elif text.isdecimal() and len(text) <= 10:
            path = self.paths.plan(f"{int(text):010d}")
        else:
            found = self.transport.run(plan_records(self.paths))
            named = [
                Plan(self, path, record)
                for path, record in found
                if record is not None and record.name == text
            ]
            if not named:
                told = f"there is no plan named {text!r} under {self.root}"
                raise PlanNotFound(text, told + hint_at_root(self))
            if only and len(named) > 1:
                numbers = ", ".join(str(int(plan.number)) for plan in named)
                raise PlanError(
                    named[-1].path,
                    f"{len(named)} plans are named {text!r}: give the number of one: {numbers}",
                )
            return named[-1]
        if not path.startswith(self.paths.root + "/plan-"):
            raise PlanNotFound(path, f"{path} is not a plan under {self.paths.root}")
        node = self.transport.ask(ReadData(path))
        if node is None:
            raise PlanNotFound(path, f"there is no plan {path}{hint_at_root(self)}")
        return Plan(self, path, readable_record(node.data))

    def workers(self) -> list[WorkerRecord]:
        """The workers that are registered under the root."""
        return living_workers(self)

    def export_plan(
        self,
        plan: Plan,
        file: str | Path,
        *,
        pause: bool = False,
        wait: float = 0.0,
        remove: bool = False,
    ) -> archive.Exported:
        """Write a plan to a file; see `zkplan.archive.export_plan`. No task of it may be claimed.

        `pause` pauses the plan first, `wait` gives its running tasks that many seconds to end, and
        `remove` removes the plan here afterwards.
        """
        return archive.export_plan(plan, file, pause=pause, wait=wait, remove=remove)

    def import_plan(
        self, file: str | Path, *, copy: bool = False, any_secret: bool = False
    ) -> Plan:
        """Make a plan from an exported file; see `zkplan.archive.import_plan`.

        A plan that is under this root already is refused unless `copy` is set. Payloads signed with
        another secret are refused unless `any_secret` is set.
        """
        number = archive.import_plan(self, file, copy=copy, any_secret=any_secret)
        return Plan(self, self.paths.plan(number))

    def prepare(self) -> None:
        """Create the root and its fixed children if they are missing."""
        self.transport.run(ensure_root(self.paths))

    def close(self) -> None:
        """Close the connection. The last client of an embedded server in a folder also stops the
        server."""
        self.sweeper.close()
        self.transport.close()
        if self._server is not None:
            self._server.release()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(
    hosts: str | KazooClient = DEFAULT_HOSTS,
    root: str = DEFAULT_ROOT,
    *,
    session_timeout: float = 10.0,
    connect_timeout: float = 10.0,
    patience: float = 30.0,
    secret: bytes | str = b"",
    verify_hostname: bool = True,
    store: str | None = None,
    inline_limit: int = INLINE_LIMIT,
    **kazoo_options: Any,
) -> Client:
    """Connect to ZooKeeper.

    `hosts` is a comma-separated list of host:port (a chroot may follow), or a started KazooClient,
    which the caller has to close. `embedded:FOLDER` starts a server in this process that keeps its
    data in the folder; the server ends with its last client. If another process serves the folder,
    the client connects to that one. When that process ends, this process starts a server within
    seconds, and the client goes on there. Plain `embedded:` keeps the data in memory until this
    process ends.

    With a KazooClient of the caller, zkplan cannot notice that ZooKeeper was restored from an older
    state (ServerRolledBack): the check needs a second client, which zkplan cannot make then.

    All times are in seconds. `session_timeout` is how long the tasks of a dead worker wait until
    others take them over; `patience` is how long one request may stay without an answer. With
    `secret`, payloads are signed, and only payloads signed with it are accepted. Without it, an
    `embedded:` address has a secret of its own, in a folder the file `secret`. `kazoo_options` go
    to KazooClient (auth_data, use_ssl, ca, default_acl, logger, …). Over TLS (`use_ssl`) the
    certificate of a server must name the host given in `hosts`, unless `verify_hostname` is False.

    `store` is where values of more than `inline_limit` bytes lie: the URL of a folder that authors
    and workers reach, `file:///FOLDER` or any other that fsspec knows. Without it the variable
    `ZKPLAN_STORE` counts, and without that the store of an `embedded:` address. Where there is
    none, a value of more than about 1 MB raises PayloadTooLarge.

    Raises ZooKeeperUnavailable if no server answers or the embedded server cannot start,
    ZkplanError for a malformed list of hosts, and TypeError for hosts of another type and for
    options that are unknown or contradict each other.
    """
    key = secret.encode() if isinstance(secret, str) else secret
    with ExitStack() as opened:
        server = opened.enter_context(lease(hosts)) if isinstance(hosts, str) else None
        transport = open_transport(
            hosts if server is None else server.hosts,
            session_timeout_s=session_timeout,
            connect_timeout_s=connect_timeout,
            patience_s=patience,
            verify_hostname=verify_hostname,
            **kazoo_options,
        )
        opened.callback(transport.close)
        # A server in memory has only its port; a server in a folder may have another port soon.
        named = isinstance(hosts, str) and not (is_embedded(hosts) and folder_of(hosts) is None)
        own = server.secret.encode() if server is not None and not key else b""
        at = store or os.environ.get("ZKPLAN_STORE") or (server.store if server else "")
        kept = Store(at, inline_limit) if at else None
        client = Client(transport, root, key or own, hosts if named else "", kept)
        client.ends_with_process = server is not None and not named
        if own:
            client.file_codec = Codec()
        if server is not None:
            server.follow(transport.client)
        client._server = server
        opened.pop_all()
    return client
