"""The link to the plans under one root: transport, paths, codec, keys, and commands to show."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import cached_property

from .errors import InvalidSettings, ZkplanError
from .history.by import acting, person
from .protection.guard import Guard
from .protection.keys import Key
from .protocol.layout import Paths
from .protocol.recorder import Recorder
from .protocol.records import Serializer
from .serialization.codec import Codec
from .settings import Settings
from .settings.resolve import resolve
from .store.end import Sweeper
from .store.files import Store
from .store.values import Values
from .transport import Transport
from .transport.living_authors import LivingAuthors

DEFAULT_ROOT = Settings.root


class Connection:
    """What plans, tasks and the views of `inspection` share: the connection of one client."""

    def __init__(
        self,
        transport: Transport,
        root: str,
        keys: Sequence[Key] = (),
        hosts: str = "",
        store: Store | None = None,
        serializer: Serializer = "pickle",
    ) -> None:
        """With `keys` all that plans consist of is sealed with the first one, and opened with any.

        `hosts` is the address for other programs, or empty if it is that of `transport`.
        """
        self.transport = transport
        self._hosts = hosts
        self.paths = Paths(_checked_root(root))
        self.keys = keys
        self.guard = Guard(keys, self.paths.root) if keys else None
        transport.guard = None if self.guard is None else self.guard.step
        #: Writes the history of plans; who it says did something.
        self.recorder = Recorder(self.paths.root, person(), acting=acting.get)
        transport.recorder = self.recorder.step
        self.codec = Codec(serializer, has_keys=bool(keys))
        #: The values of plans; large ones lie in the store, if one is given.
        self.values = Values(transport, self.codec, store)
        #: Told of plans that are done: it deletes what they leave in the store. And of histories.
        self.sweeper = Sweeper(transport, self.values, self.recorder.again)
        self.authors = LivingAuthors(transport)
        #: The keys for exported plans. An embedded server's own secret is never used for them.
        self.file_keys = keys
        #: Settings that a printed command names by a profile: its name, and those that it sets.
        self.profile = ""
        self.by_profile: frozenset[str] = frozenset()
        #: Whether this process has the server in its memory, or the workers: its plans end with it.
        self.ends_with_process = False
        #: Warnings of its budget that this client has logged.
        self._warned: set[str] = set()

    @property
    def root(self) -> str:
        return self.paths.root

    def command(self, words: str) -> str:
        """That `zkplan` command, ready to type, with the options that reach this client's plans.

        Every tree numbers its plans from the same number on. So without these options a printed
        command could reach another plan. It has none where a bare command reaches this tree.
        """
        hosts = self._hosts or f"{self.transport.hosts}{self.transport.client.chroot}"
        options = {"hosts": hosts, "root": self.root}
        told = [f"--profile {shlex.quote(self.profile)}"] if self.profile else []
        told += [
            f"--{name} {shlex.quote(value)}"
            for name, value in options.items()
            if name not in self.by_profile and value != self._left_out.get(name)
        ]
        return " ".join(["zkplan", words, *told])

    @cached_property
    def _left_out(self) -> dict[str, str]:
        """The defaults of zkplan, as far as no variable and no profile of this user changes them:
        what a command uses that does not name them."""
        try:
            bare = resolve(profile=self.profile or None, warn=lambda _: None)
        except InvalidSettings:
            return {}
        if bare.profile != self.profile:
            return {}
        defaults = {"hosts": Settings.hosts, "root": Settings.root}
        return {name: text for name, text in defaults.items() if getattr(bare, name) == text}


def _checked_root(root: str) -> str:
    parts = root.strip("/").split("/")
    plain = all(part not in ("", ".", "..", "zookeeper") and part.isprintable() for part in parts)
    if not root.startswith("/") or not plain:
        raise ZkplanError(f"the root must be a path like /zkplan, not {root!r}")
    return "/" + "/".join(parts)
