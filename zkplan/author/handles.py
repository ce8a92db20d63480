"""What authors' modules need of the handle of a task. Task is the only handle."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from ..protocol.core.add import NewTask
    from ..values.blobs import Read
    from ..values.connection import Connection
    from .completion import Completed

    #: Gets what has completed, and its sealed outcome if that is kept. It must not block.
    Callback = Callable[[Completed, bytes | None], None]


class TaskHandle:
    """The handle of a task. It becomes an edge where it is an argument of another task."""

    __slots__ = ()

    name: str

    @property
    def plan(self) -> Any:
        """The plan of the task."""
        raise NotImplementedError

    @property
    def number(self) -> str:
        """The ten digits in the name of its znode."""
        raise NotImplementedError

    def _taken(self) -> str | NewTask:
        """What an edge to the task refers to. The handle notes that another task takes it."""
        raise NotImplementedError

    def _waited_for(self) -> tuple[Connection, str, str]:
        """Client, path of the plan, and number. Raises PlanError where a wait would never end."""
        raise NotImplementedError

    def _is_kept(self) -> bool | None:
        """Whether the result will be kept, as far as this handle knows; None if it does not."""
        raise NotImplementedError

    def _bring(self, outcome: bytes | None, read: Read | None = None) -> None:
        """Keep a sealed outcome that was read together with others, until `result` takes it.

        `read` gives the blob of its value.
        """
        raise NotImplementedError

    def _is_taken(self) -> bool:
        """Whether no outcome is held here: none has come, or `result` has taken it."""
        raise NotImplementedError

    def _watch(self, callback: Callback) -> Callable[[], None]:
        """Call back once when the task has completed. Returns what cancels that."""
        raise NotImplementedError


HandleT = TypeVar("HandleT", bound=TaskHandle)
