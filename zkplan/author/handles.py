"""The interface of a task's handle for the modules of this room. Task implements it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from ..protocol.core.add import NewTask
    from ..values.blobs import Read
    from ..values.connection import Connection
    from .completion import Completed

    #: Gets a completed task, and its sealed outcome if the outcome is kept. It must not block.
    Callback = Callable[[Completed, bytes | None], None]


class TaskHandle:
    """The handle of a task. As an argument of another task, the handle becomes an edge."""

    __slots__ = ()

    name: str

    @property
    def plan(self) -> Any:
        """The plan of the task."""
        raise NotImplementedError

    @property
    def number(self) -> str:
        """The ten digits in the name of the task's znode."""
        raise NotImplementedError

    def _taken(self) -> str | NewTask:
        """The number or the definition of the task, for an edge from it. The handle notes that
        another task takes the result."""
        raise NotImplementedError

    def _waited_for(self) -> tuple[Connection, str, str]:
        """Client, path of the plan, and number. Raises PlanError where a wait would never end."""
        raise NotImplementedError

    def _is_kept(self) -> bool | None:
        """Whether the result will be kept; None if this handle does not know."""
        raise NotImplementedError

    def _bring(self, outcome: bytes | None, read: Read | None = None) -> None:
        """Hold a sealed outcome that was read together with others, until `result` takes it.

        `read` returns the blob of the value.
        """
        raise NotImplementedError

    def _is_taken(self) -> bool:
        """Whether this handle holds no outcome: none has come, or `result` has taken it."""
        raise NotImplementedError

    def _watch(self, callback: Callback) -> Callable[[], None]:
        """Call `callback` once when the task has completed. The returned function cancels this."""
        raise NotImplementedError


HandleT = TypeVar("HandleT", bound=TaskHandle)
