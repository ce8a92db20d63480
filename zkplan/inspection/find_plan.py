"""Find a plan by its path, its number, its name or its key."""

from __future__ import annotations

from ..basics.text import count
from ..connection import Connection
from ..errors import PlanError, PlanNotFound
from ..protocol.keys import find_key
from ..protocol.layout import Paths, number_of
from ..protocol.look import plan_records, readable_record, refuse_hidden
from ..protocol.records import PlanRecord
from ..protocol.requests import ReadData
from .roots import hint_at_root

#: What stands before a key where a plan is named by a text. No name begins with it.
KEY_PREFIX = "key:"
Found = tuple[str, PlanRecord | None]


def find_plan(client: Connection, which: str | int | None, key: str | None, only: bool) -> Found:
    """See Client.plan. Returns the path, and the record unless it is damaged or of a later
    format."""
    if (which is None) == (key is None):
        raise TypeError("plan() takes a path, a number or a name, or else key=…")
    if key is not None:
        return _by_key(client, key)
    text = str(which).removeprefix("plan-")
    if text.startswith(KEY_PREFIX):
        return _by_key(client, text.removeprefix(KEY_PREFIX))
    paths = client.paths
    path = path_given(paths, text)
    if not path:
        return _by_name(client, text, only)
    if not path.startswith(paths.root + "/plan-"):
        raise PlanNotFound(path, f"{path} is not a plan under {paths.root}")
    node = client.transport.ask(ReadData(path))
    if node is None:
        raise PlanNotFound(path, f"there is no plan {path}{hint_at_root(client)}")
    return path, readable_record(node.data)


def path_given(paths: Paths, which: str) -> str:
    """The path of a plan that is given by its path or its number; empty if by its name or key."""
    text = which.removeprefix("plan-")
    if text.startswith("/"):
        return text
    return paths.plan(f"{int(text):010d}") if text.isdecimal() and len(text) <= 10 else ""


def _by_key(client: Connection, key: str) -> Found:
    held = client.transport.run(find_key(client.paths, key))
    if held is None or held.plan is None:
        told = f"there is no plan with the key {key!r} under {client.root}"
        raise PlanNotFound(f"{KEY_PREFIX}{key}", told + hint_at_root(client))
    return client.paths.plan(held.number), readable_record(held.plan.data)


def _by_name(client: Connection, name: str, only: bool) -> Found:
    found = client.transport.run(plan_records(client.paths))
    named = [(path, record) for path, record in found if record and record.name == name]
    if not named:
        client.transport.run(refuse_hidden(client.paths))
        told = f"there is no plan named {name!r} under {client.root}"
        if unread := sum(record is None for _, record in found):
            told += f"; {count(unread, 'plan')} cannot be read here: a key (secret-files) may be "
            told += "missing"
        raise PlanNotFound(name, told + hint_at_root(client))
    if only and len(named) > 1:
        numbers = ", ".join(str(int(number_of(path))) for path, _ in named)
        raise PlanError(
            named[-1][0],
            f"{len(named)} plans are named {name!r}: give the number of one: {numbers}",
        )
    return named[-1]
