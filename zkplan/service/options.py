"""What a service is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

#: The static files of the page.
PAGE = Path(__file__).parent / "page"


@dataclass(frozen=True)
class Options:
    """`body_max` is in bytes. `rate` is how many requests a second one token, or one address
    without a token, may send, 0 for any number; `burst` as many at once. `looks` is how often a
    second, at most, the service looks for what has changed. `host_names` are what a request
    may name as its host; empty for any. `proxies` are addresses and networks of proxies, which are
    believed when they say whom a request comes from.
    """

    body_max: int = 16 * 1024 * 1024
    rate: float = 100.0
    burst: float = 400.0
    looks: float = 2.0
    host_names: frozenset[str] = field(default_factory=frozenset)
    proxies: tuple[str, ...] = ()
    page: Path = PAGE
