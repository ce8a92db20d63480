"""Keys in the simulation: each client seals and opens by itself, and the auditor opens all.

S20, as far as honest clients go: whatever one of them writes, a holder of the key opens at the
place where it now lies.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from zkplan.protocol.fields import Unproven
from zkplan.protocol.requests import Create, Multi, Op, ReadData, SetData, Step
from zkplan.protocol.transactions import ask
from zkplan.values.guard import Guard
from zkplan.values.keyring import SECRET, Key

from .story import Violation

#: The share of runs with keys.
SHARE = 0.2


class Sealing:
    """The key of one run. `read` reads a znode of the tree at once."""

    def __init__(
        self, seed: int, root: str, read: Callable[[ReadData], Any], alone: bool = True
    ) -> None:
        """Unless they are `alone`, an outsider may have made a place another one under them."""
        self.keys = [Key("k", SECRET, random.Random(f"key {seed}").randbytes(32))]
        self.root, self._read, self._alone = root, read, alone
        self._guards: dict[str, Guard] = {}
        self._auditor = Guard(self.keys, root)

    def guarded(self, client: str, step: Step[Any]) -> Step[Any]:
        if client not in self._guards:
            self._guards[client] = Guard(self.keys, self.root)
        return self._guards[client].step(step)

    def met(self, client: str) -> set[str]:
        """The plans of which that client knows where their data lie; the first time it reads it."""
        guard = self._guards.get(client)
        return set() if guard is None else {*guard._lives}

    def sealed(self, op: Create) -> Create:
        """The same, as a holder of the key writes it."""
        step = self._auditor.step(ask(Multi([op])))
        request = next(step)
        while type(request) is not Multi:
            request = step.send(self._read(request))  # type: ignore[arg-type]
        step.close()
        made = request.ops[0]
        assert isinstance(made, Create)
        return made

    def opened(self, path: str) -> bytes | None:
        """What a holder of the key finds there; None where nothing is."""
        step = self._auditor.step(ask(ReadData(path)))
        try:
            request = next(step)
            while True:
                request = step.send(self._read(request))  # type: ignore[arg-type]
        except StopIteration as stop:
            return None if stop.value is None else stop.value.data

    def as_meant(self, ops: Sequence[Op], results: Sequence[Any]) -> list[Op]:
        """The operations that were just applied, as those who sent them wrote them."""
        found: list[Op] = []
        for op, result in zip(ops, results, strict=True):
            path = result if type(op) is Create else op.path
            if isinstance(op, Create | SetData) and op.data and self._auditor.covers(path):
                data = self.opened(path)
                if isinstance(data, Unproven) and self._alone:
                    raise Violation(f"S20 {path} is not sealed for its place: {data.error}")
                op = op if data is None else op._replace(data=data)
            found.append(op)
        return found
