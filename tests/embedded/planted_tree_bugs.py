"""Bugs to plant in the tree of the embedded server: watches, multi, versions, access control."""

from __future__ import annotations

from typing import Any

from zkplan.embedded import watches, wire_answers
from zkplan.embedded.nodes import Node
from zkplan.embedded.records import BadVersionError, Check, Delete, NotEmptyError, SetData
from zkplan.embedded.tree import Tree
from zkplan.embedded.watches import Watches
from zkplan.embedded.writes import Writes

from .planting import around, instead, value

# Watches.


@instead(Watches, "drop", "test_watches_go_with_the_connection")
def watches_survive_their_connection(*_: Any) -> None:
    pass


value("watches fire again and again", watches, "_ONCE", 99, "test_each_watch_fires_once")


@around(
    Watches, "deleted", "test_a_deletion_tells_each_watcher_of_the_node_once_and_then_the_parent"
)
def a_deletion_does_not_wake_who_watches_the_parent(
    real: Any, self: Any, path: str, _parent: str, *acls: Any
) -> None:
    real(self, path, "\0", *acls)


@instead(Writes, "forget", "test_a_multi_refused_at_any_position_leaves_no_trace", position=6)
def a_failing_multi_fires_watches(self: Any) -> None:
    self.znodes.take_back()
    for tell, path, parent_path, node, parent in self._changes:
        tell(path, parent_path, node.acl, parent.acl)
    self._changes.clear()


@around(Tree, "set_watches", "test_a_reconnected_client_is_told_what_it_missed")
def what_a_reconnected_client_missed_is_not_told(
    real: Any, self: Any, again: Any, watcher: Any
) -> None:
    real(self, again._replace(relative_zxid=2**62), watcher)


@instead(Watches, "_may_read", "test_an_access_list_hides_data_and_events")
def events_are_told_to_who_may_not_read(*_: Any) -> bool:
    return True


# Writes.


@instead(Writes, "forget", "test_a_failing_multi_leaves_nothing_behind")
def a_failing_multi_keeps_its_first_operations(self: Any) -> None:
    self.tell()


@instead(wire_answers, "refusal_codes", "test_a_failing_multi_leaves_nothing_behind")
def every_operation_of_a_failing_multi_has_the_real_error(
    count: int, _index: int, code: int
) -> list[int]:
    return [code] * count


_REFUSED = "test_a_refused_operation_writes_nothing_but_takes_a_zxid"


@around(Writes, "execute", _REFUSED, op=Check("/a", version=1), error=BadVersionError)
def a_check_ignores_the_version(real: Any, self: Any, op: Any, *args: Any) -> Any:
    return real(self, op._replace(version=-1) if isinstance(op, Check) else op, *args)


@instead(Writes, "_judge_version", _REFUSED, op=SetData("/a", version=1), error=BadVersionError)
def set_and_delete_ignore_the_version(*_: Any) -> None:
    pass


@around(Writes, "_delete", _REFUSED, op=Delete("/a"), error=NotEmptyError)
def a_delete_ignores_children(real: Any, self: Any, op: Any, *args: Any) -> Any:
    try:
        return real(self, op, *args)
    except NotEmptyError:
        for name in list(self.nodes[op.path].children):
            self._delete(Delete(f"{op.path}/{name}"), *args)
        return real(self, op, *args)


@around(Node, "unlist_child", "test_sequence_numbers_count_creates_and_never_come_back")
def a_sequence_goes_back_after_a_delete(real: Any, self: Any, name: str) -> None:
    real(self, name)
    self.creates -= 1


@around(Tree, "_readable", "test_an_access_list_hides_data_and_events")
def no_list_is_asked_before_a_read(real: Any, self: Any, path: str, _who: Any, *args: Any) -> Any:
    return real(self, path, None, *args)
