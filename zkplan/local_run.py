"""Start a server, workers and a client on this machine, for a notebook, a script or a test."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .author.options import memory_bytes
from .basics.public_calls import Duration, in_seconds
from .basics.settings import Settings, one_setting
from .client import Client, connect_with
from .errors import ZkplanError
from .transport.addresses import PREFIX, ServerAddress, server_in_memory, server_of_folder
from .values.connection import DEFAULT_ROOT
from .values.keyring import keys_of
from .worker import THREADS_MAX, Worker, check_isolation

if TYPE_CHECKING:
    from .processes.crew import Crew

#: How long the workers' tasks wait for new owners if this process dies too.
SESSION_TIMEOUT_S = 5.0
WORKERS_MAX = 64
_REGISTER_S = 30.0
_TEND_S = 0.1
#: How long a worker may take after its grace to hand back and end, before it is killed.
_LEAVE_S = 3.0
#: The grace of running tasks if Ctrl-C ends the block.
_HURRY_S = 1.0
_GRACE_MAX_S = 30 * 24 * 3600


class local:  # in lower case, like `contextlib.closing`, because a `with` statement calls it
    """Everything that a plan needs on one machine. A `with` block returns a connected client.

        with zkplan.local() as client, client.create_plan() as plan:
            answer = plan.add_task(lambda: 6 * 7)

    In a notebook, where one block cannot span several cells:

        here = zkplan.local()
        client = here.start()
        ...
        here.close()

    The server runs in this process. `workers` is the number of worker processes, with `threads`
    slots each. A worker process that dies is replaced, with a warning in the log
    "zkplan.processes", and the other workers take over its tasks at once. With `workers=0` the
    slots are threads of this process, so that a debugger can stop in a task.

    With `isolation="process"` each task runs in a process of its own, with at most `memory_limit`
    of memory (see Worker).

    `data` is a folder that keeps the plans for later runs. If another process serves the folder,
    its server is used. Without `data` the plans are in memory and are lost at the end of the block.

    The output and the logs of tasks are shown here, line by line. `output=False` drops them; with
    `log` they go to that file instead. Your other programs reach the plans by `hosts` and `root`:
    `zkplan plan ls --hosts HOSTS`. They find the login of the server, its secret and the store by
    themselves. Other users of the machine can find none of these, and the server refuses every
    request without its login. Payloads are always signed, with a random secret if no `secret` is
    given.

    Values of more than `inline_limit` bytes (32 KiB by default) lie in a folder beside the data of
    the server, or in the `store` (see `connect`) if one is given.

    With `page` a browser can show the plans. The address is printed to standard error, unless
    `output` is False; the attribute `page` has it too. The address has a token for this run, so
    whoever has the address can do all that you can. `page` needs `zkplan[service]`.

    At the end of the block, running tasks have `grace` seconds to end. The tasks that have not
    ended then are handed back (and lost without `data`). Without a `close`, the interpreter closes
    everything when it ends, without waiting for running tasks. Raises ZkplanError for a number out
    of range.
    """

    def __init__(
        self,
        workers: int = 2,
        threads: int = 4,
        data: str | Path | None = None,
        *,
        root: str = DEFAULT_ROOT,
        secret: bytes | str = b"",
        grace: Duration = 5.0,
        log: str | Path | None = None,
        output: bool = True,
        store: str | None = None,
        inline_limit: int | str | None = None,
        isolation: Literal["thread", "process"] = "thread",
        memory_limit: str | int | None = None,
        page: bool = False,
    ) -> None:
        if type(workers) is not int or not 0 <= workers <= WORKERS_MAX:
            raise ZkplanError(f"workers must be 0 to {WORKERS_MAX}, not {workers!r}")
        if type(threads) is not int or not 1 <= threads <= THREADS_MAX:
            raise ZkplanError(f"threads must be 1 to {THREADS_MAX}, not {threads!r}")
        grace = in_seconds(grace)
        if not 0 <= grace <= _GRACE_MAX_S:
            raise ZkplanError(f"grace must be 0 to {_GRACE_MAX_S} seconds, not {grace!r}")
        if data is not None and not str(data).strip():
            raise ZkplanError('data must name a folder ("." is the current one), not be empty')
        if workers and isinstance(secret, bytes):
            try:
                secret = secret.decode()
            except UnicodeDecodeError:
                raise ZkplanError(
                    "the secret of local workers must be text, or bytes in UTF-8"
                ) from None
        check_isolation(isolation)
        self._isolation: Literal["thread", "process"] = isolation
        self._has_page, self._page = page, ""
        self._memory_limit = memory_bytes(memory_limit, "zkplan.local")
        if secret:
            keys_of(Settings(secret=os.fsencode(secret)))
        self._workers, self._threads, self._grace = workers, threads, grace
        self._folder = None if data is None else Path(data).expanduser().resolve()
        self.root, self._given = root, secret
        self._log, self._output = None if log is None else Path(log), output
        self._store = store or os.environ.get("ZKPLAN_STORE")
        self._inline_limit: int = one_setting("inline_limit", inline_limit)
        self._opened: ExitStack | None = None
        self._client: Client | None = None
        self._server: ServerAddress | None = None
        self._pid = 0

    @property
    def client(self) -> Client:
        """The client. Raises ZkplanError before `start` and after `close`."""
        if self._client is None:
            raise _not_started()
        return self._client

    def _started_server(self) -> ServerAddress:
        if self._server is None:
            raise _not_started()
        return self._server

    @property
    def hosts(self) -> str:
        """The address of the server, for other programs. Raises as `client` does."""
        return self._started_server().find()

    @property
    def login(self) -> str:
        """`user:password` of the server, for other ZooKeeper clients. Raises as `client` does.

        Keep the login secret. zkplan's own programs of the same user find it by themselves.
        """
        return self._started_server().login()

    @property
    def secret(self) -> str:
        """The secret that signs payloads. Show it to nobody else. Raises as `client` does."""
        return os.fsdecode(self._given or self._started_server().secret)

    @property
    def store(self) -> str:
        """The URL of the store of large values, for other programs (ZKPLAN_STORE). Raises as
        `client` does."""
        return self._store or self._started_server().store

    @property
    def page(self) -> str:
        """The address of the page. Keep it secret, because it has a token. Empty without
        `page=True`. Raises as `client` does."""
        self._started_server()
        return self._page

    def start(self) -> Client:
        """Start everything and return the connected client. May be called again after `close`.

        Until `close`, further calls return the same client. Raises ZkplanError if a worker cannot
        start, and ZooKeeperUnavailable if the folder cannot be used. After an error nothing is left
        running.
        """
        if self._client is not None:
            return self._client
        with ExitStack() as stack:
            folder = self._folder
            server = stack.enter_context(
                server_in_memory() if folder is None else server_of_folder(folder)
            )
            client = self._connect(server, stack)
            client.prepare()
            if self._workers == 0:
                worker = Worker(
                    self._connect(server, stack),
                    self._threads,
                    isolation=self._isolation,
                    memory_limit=self._memory_limit,
                ).start()
                hurry_s = min(self._grace, _HURRY_S)
                stack.push(
                    lambda kind, *_: worker.stop(
                        hurry_s if kind is KeyboardInterrupt else self._grace
                    )
                )
            else:
                stack.enter_context(_running(self._crew(server, stack), self._grace))
            if self._has_page:
                self._page = self._open_page(server, stack)
            self._opened, self._pid = stack.pop_all(), os.getpid()
            self._client, self._server = client, server
        # Registered last, so that it runs first, while the server is still there.
        atexit.register(self._end, KeyboardInterrupt())
        return client

    def _connect(self, server: ServerAddress, stack: ExitStack) -> Client:
        client = stack.enter_context(connect_with(self._settings(server)))
        client.ends_with_process = True
        if not self._given:
            client.file_keys = ()
        return client

    def _address(self, server: ServerAddress) -> str:
        # The address of the folder, not of the server: if another process serves the folder, each
        # client finds its present server by itself.
        return f"{PREFIX}{self._folder}" if server.is_elsewhere else server.hosts

    def _settings(self, server: ServerAddress) -> Settings:
        secret = self._given or server.secret
        return Settings(
            hosts=self._address(server),
            root=self.root,
            secret=secret.encode() if isinstance(secret, str) else secret,
            session_timeout=SESSION_TIMEOUT_S,
            store=self._store or server.store,
            inline_limit=self._inline_limit,
        )

    def _crew(self, server: ServerAddress, stack: ExitStack) -> Crew:
        # Imported here, so that a program that only needs a client does not load these modules.
        from .processes import Relay, append, drop, show
        from .processes.crew import Crew, SigningOff
        from .processes.worker import WorkerProcess, worker_command, worker_environment

        # The author of the tasks reads this output.
        more = ["--quiet", "--log-messages", "--isolation", self._isolation]
        if self._memory_limit is not None:
            more += ["--memory-limit", str(self._memory_limit)]
        command = worker_command(self._threads, self._grace, *more)
        environment, settings = worker_environment(), self._settings(server)
        shows = show if self._output else drop
        if self._log is not None:
            self._log.touch()  # so that an OSError is raised here, not at the first line
            shows = partial(append, self._log)
        signing_off = SigningOff(
            lambda: connect_with(replace(settings, hosts=server.find())), SESSION_TIMEOUT_S
        )
        stack.callback(signing_off.close)
        return Crew(
            lambda: WorkerProcess(command, Relay(shows), environment, settings=settings),
            self._workers,
            signing_off.has_ended,
            SESSION_TIMEOUT_S,
        )

    def _open_page(self, server: ServerAddress, stack: ExitStack) -> str:
        from .processes import show
        from .processes.worker import PageProcess

        page = PageProcess(self._settings(server))
        stack.callback(page.close)
        if self._output:
            show(f"page: {page.address}\n", "stderr")
        return page.address

    def close(self) -> None:
        """End the workers, the client and the server. May be called twice. Ignores failed tasks."""
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        opened, self._opened = self._opened, None
        self._client = self._server = None
        # In a forked child everything belongs to the parent.
        if opened is not None and os.getpid() == self._pid:
            atexit.unregister(self._end)
            opened.__exit__(None if error is None else type(error), error, None)

    def __enter__(self) -> Client:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *_: object
    ) -> None:
        self._end(error)


@contextmanager
def _running(crew: Crew, grace_s: float) -> Iterator[None]:
    """Register all workers before the block, replace dead ones during it, and drain after it.

    After Ctrl-C the drain is short. No process outlives the block, even if the drain is
    interrupted.
    """
    leaving = threading.Event()

    def tend() -> None:
        while not leaving.wait(_TEND_S):
            crew.tend()

    tending = threading.Thread(target=tend, name="zkplan-local", daemon=True)
    within_s = grace_s + _LEAVE_S
    try:
        crew.start()
        crew.wait_ready(_REGISTER_S)
        tending.start()
        try:
            yield
        except KeyboardInterrupt:
            within_s = _HURRY_S
            raise
        finally:
            leaving.set()
            tending.join()
            crew.stop(within_s)
    finally:
        crew.close()


def _not_started() -> ZkplanError:
    return ZkplanError("zkplan.local() is not started, or was closed: call start()")
