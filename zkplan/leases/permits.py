"""The permits that claims under a lease try: the limits of the entries are read for each claim."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..protocol.claim import Permits
from ..protocol.layout import PERMIT, Paths, limit_path, limits_in
from ..protocol.limits import Limit, read_limit
from ..protocol.requests import Step


def choose(
    paths: Paths, plan: str, names: Sequence[str], server_ms: Callable[[], Step[float]]
) -> Step[tuple[list[str], Permits]]:
    """Those of these entries whose limits have room, and what they take of them."""
    limits: dict[str, Limit | None] = {}
    free: dict[str, list[int]] = {}
    starts: dict[str, int] = {}
    permits, chosen = Permits({}, {}, starts), list[str]()
    for name in names:
        wanted = [limit_path(paths.root, plan, limit) for limit in limits_in(name)]
        for path in wanted:
            if path not in limits:
                limits[path] = found = yield from read_limit(path, server_ms)
                free[path] = found.free if found is not None else []
        if not all(free[path] for path in wanted):
            continue
        taken = []
        for path in wanted:
            number, limit = free[path].pop(0), limits[path]
            taken.append(f"{path}/{PERMIT}{number}")
            if limit is not None:
                permits.versions[path] = limit.version
                if limit.period_ms:
                    starts[taken[-1]] = limit.versions.get(number, -1)
        chosen.append(name)
        if taken:
            permits.taken[name] = tuple(taken)
    return chosen, permits
