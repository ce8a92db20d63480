"""Points where a test can delay, stop or kill the process; without a test they do nothing.

The environment arms them, in worker processes too:
`ZKPLAN_FAILPOINTS="commit.sent=sleep:0.2:0.1,claim.loaded=stop"`. Actions: `sleep:SECONDS`, `stop`
(SIGSTOP to itself, once), `kill` (SIGKILL) and `fail` (an OSError). Each may end with
`:PROBABILITY` or `:PROBABILITY:PASSES`; the first PASSES passes do nothing. `*` arms the other
points.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable

from ..backoff import CHANCE

VARIABLE = "ZKPLAN_FAILPOINTS"
_SIGNALS = {"stop": signal.SIGSTOP, "kill": signal.SIGKILL}
#: Action, seconds, probability, and the number of first passes without an action.
_Armed = tuple[str, float, float, int]
_UNARMED: _Armed = ("", 0.0, 0.0, 0)


def _nothing(*_: str) -> None:
    """Do nothing: `reach` while no point is armed, and `notify` by default."""


#: Called with a point and its action just before the action, for tests.
notify: Callable[[str, str], None] = _nothing
#: Call as `failpoints.reach("name")`, through the module: a test may arm it later.
reach: Callable[[str], None] = _nothing


def arm(text: str) -> None:
    """Arm the points that `text` names, and no others; an empty text disarms all.

    Raises ValueError for a text of another form.
    """
    global reach
    points = dict(_parsed(part) for part in text.split(",") if part.strip())

    def reached(name: str) -> None:
        armed = name if name in points else "*"
        action, seconds, probability, passes = points.get(armed, _UNARMED)
        if CHANCE.random() >= probability:
            return
        if passes:
            points[armed] = (action, seconds, probability, passes - 1)
            return
        if action == "sleep":
            notify(name, action)
            time.sleep(seconds)
            return
        if action == "fail":
            notify(name, action)
            raise OSError(errno.EIO, f"made to fail at {name}")
        # Only once: a process that was continued must not stop at its next pass.
        if points.pop(armed, None) is not None:
            notify(name, action)
            os.kill(os.getpid(), _SIGNALS[action])

    reach = reached if points else _nothing


def _parsed(part: str) -> tuple[str, _Armed]:
    name, _, rest = part.strip().partition("=")
    action, *numbers = rest.split(":")
    known = action in ("sleep", "fail", *_SIGNALS)
    if not name or not known or (action == "sleep" and not numbers):
        raise ValueError(
            f"{VARIABLE} takes NAME=sleep:SECONDS, NAME=stop, NAME=kill or NAME=fail, not {part!r}"
        )
    seconds = float(numbers.pop(0)) if action == "sleep" else 0.0
    probability = float(numbers.pop(0)) if numbers else 1.0
    return name, (action, seconds, probability, int(numbers[0]) if numbers else 0)


arm(os.environ.get(VARIABLE, ""))
