"""Read what is needed one after another side by side: a few are read before their turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from .blob import Bytes

#: Gives the bytes of one blob. Raises as `Values.blob`.
Read = Callable[[], Bytes]
#: So many are read at once; no more of them are held.
READERS = 8
#: So many that need no reading stand behind one that does.
WAITING_MAX = 256


def side_by_side(
    reads: Iterable[Read | None], is_wanted: Callable[[], bool] = lambda: True
) -> Iterator[Read | None]:
    """The same in order, each read on a thread before its turn; None where nothing is to be read.

    The call that is yielded gives what was read, or raises. A window moves along: with each that is
    taken the next one is read, while others go on. Nothing is read ahead while `is_wanted` says no.
    """
    waiting, held = deque[Read | None](), 0
    pool: ThreadPoolExecutor | None = None
    try:
        for read in reads:
            if read is None or not is_wanted():
                waiting.append(read)
            else:
                pool = pool or ThreadPoolExecutor(READERS, "zkplan-store")
                waiting.append(pool.submit(read).result)
            held += read is not None
            while waiting and (
                waiting[0] is None
                or held >= READERS
                or len(waiting) >= WAITING_MAX
                or not is_wanted()
            ):
                first = waiting.popleft()
                held -= first is not None
                yield first
        yield from waiting
    finally:
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)
