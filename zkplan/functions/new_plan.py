"""The record of a new plan: what its author says is checked, before anything is written."""

from __future__ import annotations

import math
import os
import time
from typing import Any, Literal

from ..errors import InvalidTask
from ..inspection.find_plan import KEY_PREFIX
from ..protocol.fields import NUMBER_MAX
from ..protocol.layout import PRIORITY_MAX, PRIORITY_MIN
from ..protocol.options import TaskOptions
from ..protocol.records import WEIGHT_MAX, OnFailure, PlanRecord, Serializer
from .limit_names import check_max_running
from .moments import Moment, seconds_of
from .option_checks import check_key, check_options

IfExists = Literal["return", "raise", "replace_finished"]


def new_record(
    name: str | None,
    defaults: TaskOptions,
    on_failure: OnFailure,
    *,
    retention: float | None = None,
    key: str | None = None,
    not_before: Moment | None = None,
    deadline: Moment | None = None,
    serializer: Serializer = "pickle",
    weight: int = 1,
    max_running: int | None = None,
    history: bool = True,
) -> PlanRecord:
    """Raises InvalidTask for an option, a name or a key out of range."""
    check_options(defaults, "the plan's defaults")
    if on_failure not in ("hold", "cascade"):
        raise InvalidTask("", f'on_failure must be "hold" or "cascade", not {on_failure!r}')
    check_plan_name(name)
    check_retention(retention)
    check_max_running(max_running)
    check_key(key, "", "the key of a plan")
    check_share(weight, None)
    times: dict[str, Any] = {}
    for what, moment in (("not_before", not_before), ("deadline", deadline)):
        try:
            times[what] = None if moment is None else seconds_of(moment, what)
        except ValueError as error:
            raise InvalidTask("", str(error)) from None
    return PlanRecord(
        *(name or "", os.urandom(12).hex(), time.time(), defaults, on_failure),
        retention=retention,
        key=key or "",
        serializer=serializer,
        weight=weight,
        max_running=max_running or 0,
        history=history,
        **times,
    )


def check_plan_name(name: str | None) -> None:
    """Raises InvalidTask."""
    if name is not None and not (
        isinstance(name, str) and 0 < len(name) <= 200 and name.isprintable()
    ):
        raise InvalidTask(
            "", f"the name of a plan has 1 to 200 printable characters, unlike {name!r:.50}"
        )
    if name is not None and name.startswith(KEY_PREFIX):
        raise InvalidTask(
            "",
            f"the name of a plan does not begin with {KEY_PREFIX!r}, unlike {name!r:.50}: that "
            "names a plan by its key (key=…)",
        )


def check_retention(seconds: float | None) -> None:
    """Raises InvalidTask."""
    is_number = isinstance(seconds, (int, float))
    if seconds is not None and not (
        is_number and (0 <= seconds < NUMBER_MAX or seconds == math.inf)
    ):
        raise InvalidTask("", f"retention is a number of seconds from 0, not {seconds!r}")


def check_share(weight: int | None, priority: int | None) -> None:
    """Raises InvalidTask."""
    if weight is not None and not (type(weight) is int and 1 <= weight <= WEIGHT_MAX):
        raise InvalidTask(
            "", f"weight is a whole number from 1 to {WEIGHT_MAX}, not {weight!r:.50}"
        )
    known = type(priority) is int and PRIORITY_MIN <= priority <= PRIORITY_MAX
    if priority is not None and not known:
        raise InvalidTask(
            "", f"priority must be {PRIORITY_MIN} to {PRIORITY_MAX}, not {priority!r:.50}"
        )


def check_if_exists(if_exists: IfExists, key: str | None) -> None:
    """Raises InvalidTask."""
    if if_exists not in ("return", "raise", "replace_finished"):
        raise InvalidTask(
            "", f'if_exists is "return", "raise" or "replace_finished", not {if_exists!r}'
        )
    if if_exists != "return" and key is None:
        raise InvalidTask("", f"if_exists={if_exists!r} needs a key: a name may be used again")
