"""Bugs to plant in the tree of the embedded server: watches, multi, versions, access control."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from zkplan.embedded import service, watches, wire, writes
from zkplan.embedded.nodes import Node
from zkplan.embedded.records import Check, Delete, NotEmptyError
from zkplan.embedded.requests import AddAuth
from zkplan.embedded.tree import Tree

from .planting import around, bug, no_effect

# Watches.


@bug
def watches_survive_their_connection(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tree, "drop_watches", no_effect)


@bug
def watches_fire_again_and_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(watches, "_ONCE", 99)


@bug
def a_deletion_does_not_wake_who_watches_the_parent(patch: pytest.MonkeyPatch) -> None:
    def deleted(real: Any, self: Any, path: str, _parent: str, *acls: Any) -> None:
        real(self, path, "\0", *acls)

    created, real, changed = writes._TELL
    patch.setattr(writes, "_TELL", (created, functools.partial(deleted, real), changed))


@bug
def a_failing_multi_fires_watches(patch: pytest.MonkeyPatch) -> None:
    def forget(self: Any) -> None:
        self.znodes.take_back()
        for kind, path, parent_path, node, parent in self._changes:
            writes._TELL[kind](self._watches, path, parent_path, node.acl, parent.acl)
        self._changes.clear()

    patch.setattr(writes.Writes, "forget", forget)


@bug
def what_a_reconnected_client_missed_is_not_told(patch: pytest.MonkeyPatch) -> None:
    def set_watches(real: Any, self: Any, again: Any, watcher: Any) -> None:
        real(self, again._replace(relative_zxid=2**62), watcher)

    around(patch, Tree, "set_watches", set_watches)


@bug
def events_are_told_to_who_may_not_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(watches.Watches, "_may_read", lambda *_: True)


# Writes.


@bug
def a_failing_multi_keeps_its_first_operations(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writes.Writes, "forget", writes.Writes.tell)


@bug
def every_operation_of_a_failing_multi_has_the_real_error(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(wire, "refusal_codes", lambda count, _index, code: [code] * count)


@bug
def a_check_ignores_the_version(patch: pytest.MonkeyPatch) -> None:
    def execute(real: Any, self: Any, op: Any, *args: Any) -> Any:
        return real(self, op._replace(version=-1) if isinstance(op, Check) else op, *args)

    around(patch, writes.Writes, "execute", execute)


@bug
def set_and_delete_ignore_the_version(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writes.Writes, "_judge_version", no_effect)


@bug
def a_delete_ignores_children(patch: pytest.MonkeyPatch) -> None:
    def delete(real: Any, self: Any, op: Any, *args: Any) -> Any:
        try:
            return real(self, op, *args)
        except NotEmptyError:
            for name in list(self.nodes[op.path].children):
                self._delete(Delete(f"{op.path}/{name}"), *args)
            return real(self, op, *args)

    around(patch, writes.Writes, "_delete", delete)


@bug
def a_sequence_goes_back_after_a_delete(patch: pytest.MonkeyPatch) -> None:
    def unlist_child(real: Any, self: Any, name: str) -> None:
        real(self, name)
        self.creates -= 1

    around(patch, Node, "unlist_child", unlist_child)


@bug
def no_list_is_asked_before_a_read(patch: pytest.MonkeyPatch) -> None:
    def readable(real: Any, self: Any, path: str, _who: Any, *args: Any) -> Any:
        return real(self, path, None, *args)

    around(patch, Tree, "_readable", readable)


@bug
def who_fails_to_prove_an_identity_stays_connected(patch: pytest.MonkeyPatch) -> None:
    def handle_rare(real: Any, self: Any, peer: Any, xid: int, request: Any) -> None:
        real(self, peer, xid, request)
        if isinstance(request, AddAuth) and peer.leaving:
            peer.leaving = False
            self.out.pop()

    around(patch, service.Service, "_handle_rare", handle_rare)
