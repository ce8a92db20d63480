"""Read kept outcomes in bulk, and those of their values that are stored side by side."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from ..connection import Connection
from ..inspection.outcomes import outcome_nodes
from ..store.ahead import Read, side_by_side
from ..transport import Transport
from .group import Waited
from .plan_tasks import Completed

T = TypeVar("T", bound=Waited)
Each = TypeVar("Each")


def read_outcomes(
    transport: Transport, plan_path: str, numbers: Sequence[str]
) -> Iterator[tuple[str, bytes | None]]:
    """Yield the number and the sealed outcome of each task, None where there is none.

    It reads in batches as it goes on.
    """
    for batch in outcome_nodes(transport, plan_path, numbers, strict=True):
        for number, node in batch:
            yield number, None if node is None else node.data


def with_outcomes(
    found: list[tuple[T, Completed]],
) -> Iterator[tuple[tuple[T, Completed], bytes | None]]:
    """Add the sealed outcome to each task that has one. It reads as it goes on."""
    by_plan: dict[tuple[int, str], list[tuple[T, Completed]]] = {}
    places: dict[tuple[int, str], Connection] = {}
    for pair in found:
        client, plan_path, _ = pair[0]._waited_for()
        places[id(client), plan_path] = client
        by_plan.setdefault((id(client), plan_path), []).append(pair)
    for key, pairs in by_plan.items():
        kept = {completed.number: (task, completed) for task, completed in pairs if completed.kept}
        for number, outcome in read_outcomes(places[key].transport, key[1], list(kept)):
            yield kept[number], outcome
        for pair in pairs:
            if not pair[1].kept:
                yield pair, None


def with_reads(
    found: Iterable[tuple[Each, bytes | None]],
    place_of: Callable[[Each], tuple[Connection, str]],
    is_wanted: Callable[[], bool] = lambda: True,
) -> Iterator[tuple[Each, bytes | None, Read | None]]:
    """Add to each sealed outcome what gives the blob of its value, if that is stored: for
    `open_outcome`. A few are read ahead, as long as that `is_wanted`.

    `place_of` says the client and the path of the plan.
    """
    behind = deque[tuple[Each, bytes | None]]()

    def reads() -> Iterator[Read | None]:
        for each, outcome in found:
            behind.append((each, outcome))
            client, plan_path = place_of(each)
            yield None if outcome is None else client.values.reading_sealed(plan_path, outcome)

    for read in side_by_side(reads(), is_wanted):
        yield (*behind.popleft(), read)
