"""Compare both servers on seeds: python -m tests.differential FIRST [LAST [STEP]]."""

from __future__ import annotations

import sys

from .compare import compare
from .servers import two_servers


def main(arguments: list[str]) -> int:
    first, *rest = map(int, arguments)
    last = rest[0] if rest else first
    step = rest[1] if len(rest) > 1 else 1
    with two_servers() as servers:
        outcome = compare(servers, range(first, last + 1, step))
    for report in outcome.reports:
        sys.stdout.write(f"{report}\n\n")
    sys.stdout.write(f"{outcome}\n")
    return 1 if outcome.reports else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
