"""Requests under way, and answers that belong together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..protocol.requests import Request

#: Called with the answer and None, or with None and an error.
Done = Callable[[Any, BaseException | None], None]


@dataclass(slots=True, eq=False, repr=False)
class Call:
    """A request under way. kazoo calls `set` or `set_exception` at its end, which call `ended`."""

    request: Request
    packet: Any
    done: Done
    ended: Callable[[Call, Any, BaseException | None], None]
    #: Nobody waits for the answer any more.
    abandoned: bool = False
    #: How often a server has answered that it failed, which says nothing of the request.
    server_failures: int = 0
    #: Whether kazoo has told its end since it was last sent.
    told: bool = False

    def set(self, value: Any) -> None:
        self.told = True
        self.ended(self, value, None)

    def set_exception(self, error: BaseException) -> None:
        self.told = True
        self.ended(self, None, error)


class CombinedAnswer:
    """The answers of several requests as one; `done` is called once, with all or an error."""

    def __init__(self, count: int, done: Done) -> None:
        self._answers: list[Any] = [None] * count
        self._left = count
        self._done = done
        self._lock = threading.Lock()

    def done_of(self, index: int) -> Done:
        """The `done` of the request at `index`."""

        def take(answer: Any, error: BaseException | None) -> None:
            self._answers[index] = answer
            with self._lock:
                if self._left == 0:
                    return  # one of them has failed already
                self._left = 0 if error is not None else self._left - 1
                ended = self._left == 0
            if ended:
                self._done(self._answers if error is None else None, error)

        return take
