"""Connect to ZooKeeper, create plans, find them, and operate the root."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .author.archives import read_back
from .author.new_plans import IfExists, check_if_exists, new_record, plan_defaults
from .author.operator_actions import QueuesAndLimits, WorkerOrders
from .author.options import Moment
from .author.retention import Bounded
from .author.task_specs import PlanDefaults, shows
from .basics.public_calls import Duration, in_seconds, told_to_caller
from .basics.settings import Settings, resolve, with_password
from .errors import PlanExists
from .plan import Plan
from .protocol.core.plans_and_queues import plan_records
from .protocol.features import author
from .protocol.features.schedules import CatchUp, Overlap
from .protocol.records import OnFailure, PlanRecord, Serializer
from .protocol.task_options import DEFAULT_OPTIONS
from .schedules import Schedule, find, find_all, new_schedule
from .tasks import Task
from .transport import open_transport
from .transport.access import access_options
from .transport.addresses import ServerAddress, folder_of, is_embedded, server_at
from .values.keyring import keys_of, parse_keys
from .values.store import Store
from .views.find import find_plan
from .views.overview import RootViews
from .views.root_access import warn_if_open

if TYPE_CHECKING:
    from kazoo.client import KazooClient
    from typing_extensions import Unpack

    from .author.export import Exported


class Client(WorkerOrders, Bounded, RootViews, QueuesAndLimits):
    """A connection to the plans under one root. It is thread-safe, and a context manager.

    Do not use a client in a signal handler: the handler may have interrupted a request of the same
    thread, and would wait for that request for ever. A handler may raise, or set an event that
    another thread waits for.
    """

    #: The server that `close` releases.
    _server: ServerAddress | None = None

    @told_to_caller
    @shows(PlanDefaults, **asdict(DEFAULT_OPTIONS))
    def create_plan(
        self,
        name: str | None = None,
        *,
        key: str | None = None,
        if_exists: IfExists = "return",
        on_failure: OnFailure = "hold",
        retention: Duration | None = None,
        weight: int = 1,
        max_running: int | None = None,
        not_before: Moment | None = None,
        deadline: Moment | None = None,
        history: bool = True,
        **options: Unpack[PlanDefaults],
    ) -> Plan:
        """Create an empty plan. The `options` are the defaults for its tasks; see `Plan.add_task`.

        `on_failure` decides what happens when a task is out of attempts. With "hold" the task is
        kept as dead, and its dependents wait until `retry` gives it more attempts. With "cascade"
        its dependents fail too, and the plan ends as `failed`: `retry` runs them again. Workers
        remove a plan `retention` seconds after its end. The default is that of `set_retention`, or
        30 days; with `math.inf` a plan is never removed. A plan of `weight` 3 (1 to 1000) gets
        three times the slots of a plan of weight 1 while both have work of the same priority. At
        most `max_running` tasks of the plan run at a time. The plan keeps its history unless
        `history` is False.

        At most one plan has a given `key`. If a plan has it already, `if_exists` decides: "return"
        returns a handle on that plan, whose `is_new` is False; "raise" raises PlanExists; with
        "replace_finished" a plan that is done or cancelled stays, but loses the key to the new
        plan. A plan that was not marked ready, and whose author is gone, always loses the key, and
        is cancelled. An author is gone when its handle on the new plan was dropped, or the session
        of its client has ended. Tasks added to a plan that was found need keys of their own, so
        that two authors do not add them twice. The key is free again when its plan is removed.

        Workers start no task of the plan before `not_before`, and cancel the plan at its
        `deadline`. Both are a datetime with a zone, or a delay from now, in seconds or as a
        timedelta. The clock of the ZooKeeper server decides. Raises InvalidTask for an option, a
        name or a key out of range, and BudgetSpent.
        """
        check_if_exists(if_exists, key)
        record = new_record(
            name,
            defaults=plan_defaults(options, self.codec.is_json_only),
            on_failure=on_failure,
            retention=retention,
            key=key,
            not_before=not_before,
            deadline=deadline,
            serializer=self.codec.serializer,
            weight=weight,
            max_running=max_running,
            history=history,
        )
        number, is_new = self._create(record, key, if_exists)
        path = self.paths.plan(number)
        if not is_new and if_exists == "raise":
            raise PlanExists(path, f"{path} has the key {key!r}")
        plan = Plan(self, path, record if is_new else None, new=is_new)
        plan._found = not is_new
        if is_new and key is not None:
            self.authors.hold(plan, path, record.uid)
        return plan

    def _create(self, record: PlanRecord, key: str | None, if_exists: str) -> tuple[str, bool]:
        """Create a plan, or find the one with `key`. Returns its number, and whether it is new."""
        is_new = True
        if key is None:
            number = self.transport.run(author.create_plan(self.paths, record, warn=self._warn))
        else:
            replaces = if_exists == "replace_finished"
            number, is_new = self.authors.create(self.paths, record, replaces, self._warn)
        if is_new and not record.history:
            self.recorder.leave_out(number)
        return number, is_new

    def plans(self) -> list[Plan]:
        """All plans under the root, oldest first."""
        found = self.transport.run(plan_records(self.paths))
        return [Plan(self, path, record) for path, record in found]

    @told_to_caller
    def plan(
        self, which: str | int | None = None, *, key: str | None = None, only: bool = False
    ) -> Plan:
        """Find a plan by its path, number, or name, or by its key: `key="…"`, or the text "key:…".
        Raises PlanNotFound.

        If several plans have the name, this returns the newest one. With `only`, such a name raises
        PlanError, which lists their numbers. A key belongs to one plan at most.
        """
        return Plan(self, *find_plan(self, which, key, only))

    @told_to_caller
    def schedule(
        self,
        name: str,
        cron: str,
        builder: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        timezone: str = "UTC",
        overlap: Overlap = "skip",
        catch_up: CatchUp = "latest",
        jitter: Duration = 0.0,
        on_failure: OnFailure = "cascade",
        retention: Duration | None = None,
    ) -> Schedule:
        """Make a plan each time that the cron expression is due. If a schedule of this name exists,
        change it.

        `cron` has the fields minute, hour, day, month, weekday; a field for the second may precede
        them. Each plan begins with one task, which runs `builder(*args, **kwargs)`. The builder
        adds the real tasks to its plan, `zkplan.current().plan`, whose `due` is the due time. Any
        worker may fire the schedule, by the clock of the ZooKeeper server; no due time gets two
        plans. The plan has the key "NAME@TIME".

        `overlap` decides what happens while the previous plan has not ended: "skip" this due time,
        "queue" it until that plan ends, "cancel_previous", or "allow" both. `catch_up` decides
        which due times count that passed without a worker: the "latest", "all", or "none" that is
        more than a minute old. `jitter` delays each due time by a random time of at most that many
        seconds. `on_failure` and `retention` apply to the plans; see `create_plan`.

        Raises InvalidTask for an argument out of range; NotSerialisable and PayloadTooLarge for the
        builder and its arguments.
        """
        new_schedule(
            self,
            name,
            cron,
            builder,
            args,
            kwargs,
            timezone=timezone,
            overlap=overlap,
            catch_up=catch_up,
            jitter=in_seconds(jitter),
            on_failure=on_failure,
            retention=retention,
        )
        return Schedule(self, name)

    def schedules(self) -> list[Schedule]:
        """All schedules under the root, by name."""
        return find_all(self)

    def find_schedule(self, name: str) -> Schedule:
        """The schedule with this name. Raises ScheduleNotFound."""
        return find(self, name)

    def export_plan(
        self,
        plan: Plan,
        file: str | Path,
        *,
        pause: bool = False,
        wait: Duration = 0.0,
        remove: bool = False,
    ) -> Exported:
        """Write a plan to a file; see `zkplan.author.export.export_plan`. The plan must have no
        claimed task.

        With `pause` the plan is paused first. `wait` is how many seconds its running tasks have to
        end. With `remove` the plan is removed here afterwards.
        """
        from .author.export import export_plan

        return export_plan(plan, file, pause=pause, wait=wait, remove=remove)

    def import_plan(
        self,
        file: str | Path,
        *,
        copy: bool = False,
        any_secret: bool = False,
        archived: bool = False,
    ) -> Plan:
        """Make a plan from an exported file; see `zkplan.author.export.import_plan`.

        A plan that this root has already is refused unless `copy` is set. Payloads signed with
        another secret are refused unless `any_secret` is set. With `archived`, `file` names an
        archive in the store.
        """
        from .author.export import import_plan

        with read_back(self, str(file)) if archived else nullcontext(Path(file)) as source:
            number = import_plan(self, source, copy=copy, any_secret=any_secret)
        return Plan(self, self.paths.plan(number))

    def prepare(self) -> None:
        """Create the root and its fixed children if they are missing."""
        self.transport.run(author.ensure_root(self.paths))

    def close(self) -> None:
        """Close the connection. The last client of a server in a folder also stops that server."""
        self.sweeper.close()
        self.authors.close()
        self.transport.close()
        if self._server is not None:
            self._server.release()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ---- The functional API: four plain functions, as zk-plan had them.


def create_plan(client: Client, name: str | None = None, **defaults: Any) -> Plan:
    """Create an empty plan. See `Client.create_plan`."""
    return client.create_plan(name, **defaults)


def add_task(plan: Plan, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Task:
    """Add a task that calls `fn(*args, **kwargs)`. An argument that is a task becomes an edge."""
    return plan.add_task(fn, args, kwargs)


def mark_ready(plan: Plan) -> None:
    """Let the plan run. See `Plan.mark_ready`."""
    plan.mark_ready()


def plan_completed(plan: Plan) -> bool:
    """Whether every task of the plan has finished. See `Plan.is_drained`."""
    return plan.is_drained()


# ---- Connect.


#: Options of kazoo that prove who this client is.
_PROOFS = ("auth_data", "sasl_options", "certfile", "keyfile")


def connect(
    hosts: str | KazooClient | None = None,
    root: str | None = None,
    *,
    profile: str | None = None,
    session_timeout: Duration | None = None,
    connect_timeout: Duration | None = None,
    patience: Duration = 30.0,
    secret: bytes | str | None = None,
    secret_files: Sequence[str | Path] | None = None,
    verify_hostname: bool | None = None,
    access: str | None = None,
    store: str | None = None,
    inline_limit: int | str | None = None,
    serializer: str | None = None,
    **kazoo_options: Any,
) -> Client:
    """Connect to ZooKeeper.

    Arguments that are not given come from the variables `ZKPLAN_…`, and then from the profile,
    field by field: docs/operate/connecting.md. `profile`, or else `ZKPLAN_PROFILE`, names the
    profile. If neither does and no hosts are given, the default profile of the file applies.

    `hosts` is a comma-separated list of host:port (a chroot may follow), or a started KazooClient,
    which the caller has to close. `embedded:FOLDER` starts a server in this process that keeps its
    data in the folder; the server ends with its last client. If another process serves the folder,
    the client connects to that process. When that process ends, this process starts a server within
    seconds, and the client goes on there. Plain `embedded:` keeps the data in memory until this
    process ends. The default is `127.0.0.1:2181`.

    With a KazooClient of the caller, zkplan cannot notice that ZooKeeper was restored from an older
    state (ServerRolledBack), because the check needs a second client, which zkplan cannot make.
    Login, access list, TLS and session are those of the given client.

    All times are in seconds. `session_timeout` (10 by default) is how long the tasks of a dead
    worker wait until others take them over; `patience` is how long to wait for the answer to one
    request. With `secret`, or `secret_files` that hold one, payloads are signed, and only payloads
    signed with it are accepted. A closed server of this user on this machine needs no `secret` and
    no login: the client finds both. With a login (in the settings, `auth_data` or `sasl_options`)
    only this login can use what the client creates, unless `access` or `default_acl` allows others:
    `access` is `creator`, `open`, or entries such as `creator+read:digest:USER:HASH`.
    `kazoo_options` go to KazooClient (auth_data, use_ssl, ca, default_acl, logger, …). Over TLS
    (`use_ssl`) the certificate of a server must be signed by `ca` (with `system_ca=True` by an
    authority of the system), and name the host of `hosts` (or `server_name`), unless
    `verify_hostname` is False.

    `store` is the URL of a folder that authors and workers reach, such as `file:///FOLDER`. It
    holds values of more than `inline_limit` bytes (32 KiB by default). The default is the store of
    an `embedded:` address. Without a store, a value of more than about 1 MB raises PayloadTooLarge.
    With `serializer` "json" nothing is unpickled: tasks refer to functions by name.

    Raises ZooKeeperUnavailable if no server answers or the embedded server cannot start,
    InvalidSettings for a wrong profile, variable or file, ZkplanError for a malformed list of
    hosts, and TypeError for hosts of another type, and for unknown or contradictory options.
    """
    is_made = hosts is not None and not isinstance(hosts, str)  # a KazooClient
    given: dict[str, Any] = {"hosts": Settings.hosts if is_made else hosts, "root": root}
    given |= {"session_timeout": in_seconds(session_timeout)}
    given |= {"connect_timeout": in_seconds(connect_timeout), "inline_limit": inline_limit}
    given |= {"secret": secret, "secret_files": secret_files, "access": access, "store": store}
    given |= {"serializer": serializer}
    settings = resolve(given, profile, proofs=[*filter(kazoo_options.get, _PROOFS)])
    if verify_hostname is not None:
        kazoo_options["verify_hostname"] = verify_hostname
    return connect_with(
        settings,
        client=hosts if is_made else None,
        patience=in_seconds(patience),
        **kazoo_options,
    )


def connect_with(
    settings: Settings,
    *,
    client: KazooClient | None = None,
    patience: float = 30.0,
    **kazoo_options: Any,
) -> Client:
    """Connect by `settings` alone, without the environment and files.

    `client` is a started KazooClient to use. `kazoo_options` override the settings. Raises as
    `connect`.
    """
    if client is None:
        settings = with_password(settings)
    keys = keys_of(settings)
    hosts: str | KazooClient = settings.hosts if client is None else client
    with ExitStack() as opened:
        server = opened.enter_context(server_at(hosts)) if isinstance(hosts, str) else None
        options = access_options(settings) if server is not None else {}
        transport = open_transport(
            hosts if server is None else server.hosts,
            session_timeout_s=settings.session_timeout,
            connect_timeout_s=settings.connect_timeout,
            patience_s=patience,
            server=server,
            **options | kazoo_options,
        )
        opened.callback(transport.close)
        # A server in memory has only its port; a server in a folder may have another port soon.
        named = isinstance(hosts, str) and not (is_embedded(hosts) and folder_of(hosts) is None)
        own = (
            parse_keys(server.secret, "the server") if server and server.secret and not keys else []
        )
        at = settings.store or (server.store if server else "")
        kept = Store(at, settings.inline_limit) if at else None
        written: Serializer = "json" if settings.serializer == "json" else "pickle"
        hosts_told = settings.hosts if named else ""
        made = Client(transport, settings.root, keys or own, hosts_told, kept, written)
        made.ends_with_process = server is not None and not named
        if settings.profile and isinstance(hosts, str):
            made.profile = settings.profile
            made.by_profile = settings.by_profile
        if own:
            made.file_keys = ()
        if server is not None:
            server.follow(transport.client)
        made._server = server
        warn_if_open(made)
        opened.pop_all()
    return made
