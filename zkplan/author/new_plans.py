"""Check the options of a plan, and make the record of a new one."""

from __future__ import annotations

import math
import os
import time
from typing import Literal

from ..basics.public_calls import Duration, in_seconds, refuse_other_names
from ..errors import InvalidTask
from ..protocol.features.limits import SIZE_MAX
from ..protocol.fields import NUMBER_MAX
from ..protocol.layout import PRIORITY_MAX, PRIORITY_MIN
from ..protocol.records import WEIGHT_MAX, OnFailure, PlanRecord, Serializer
from ..protocol.task_options import DEFAULT_OPTIONS, TaskOptions
from ..views.find import KEY_PREFIX
from .options import Moment, check_key, seconds_of, with_options
from .task_specs import PlanDefaults

IfExists = Literal["return", "raise", "replace_finished"]


def plan_defaults(options: PlanDefaults, as_json: bool = False) -> TaskOptions:
    """The defaults for the tasks of a plan. Raises InvalidTask, NotSerialisable, and TypeError for
    an unknown option."""
    refuse_other_names(options)
    if unknown := options.keys() - PlanDefaults.__annotations__.keys():
        raise TypeError(f"a plan has no option {', '.join(sorted(unknown))}")
    given = {name: value for name, value in options.items() if value is not None}
    return with_options(DEFAULT_OPTIONS, given, "the plan's defaults", as_json)


def new_record(
    name: str | None,
    *,
    defaults: TaskOptions = DEFAULT_OPTIONS,
    on_failure: OnFailure = "hold",
    retention: Duration | None = None,
    key: str | None = None,
    not_before: Moment | None = None,
    deadline: Moment | None = None,
    serializer: Serializer = "pickle",
    weight: int = 1,
    max_running: int | None = None,
    history: bool = True,
) -> PlanRecord:
    """Make the record of a plan. `defaults` are checked already. Raises InvalidTask for an option,
    a name or a key out of range."""
    retention = in_seconds(retention)
    check_plan(name, on_failure, retention, max_running)
    check_key(key, "", "the key of a plan")
    check_share(weight, None)
    try:
        begins = None if not_before is None else seconds_of(not_before, "not_before")
        ends = None if deadline is None else seconds_of(deadline, "deadline")
    except ValueError as error:
        raise InvalidTask("", str(error)) from None
    return PlanRecord(
        name=name or "",
        uid=os.urandom(12).hex(),
        created=time.time(),
        defaults=defaults,
        on_failure=on_failure,
        retention=retention,
        key=key or "",
        not_before=begins,
        deadline=ends,
        serializer=serializer,
        weight=weight,
        max_running=max_running or 0,
        history=history,
    )


def check_plan(
    name: str | None, on_failure: str, retention: float | None, max_running: int | None
) -> None:
    """Raises InvalidTask."""
    if on_failure not in ("hold", "cascade"):
        raise InvalidTask("", f'on_failure must be "hold" or "cascade", not {on_failure!r}')
    if name is not None and not (
        isinstance(name, str) and 0 < len(name) <= 200 and name.isprintable()
    ):
        raise InvalidTask(
            "", f"the name of a plan must have 1 to 200 printable characters, not {name!r:.50}"
        )
    if name is not None and name.startswith(KEY_PREFIX):
        raise InvalidTask(
            "",
            f"the name of a plan must not begin with {KEY_PREFIX!r}, as {name!r:.50} does, because "
            "this prefix marks the key of a plan (key=…)",
        )
    is_number = isinstance(retention, (int, float))
    if retention is not None and not (
        is_number and (0 <= retention < NUMBER_MAX or retention == math.inf)
    ):
        raise InvalidTask("", f"retention must be 0 or more seconds, not {retention!r}")
    if max_running is not None and not (type(max_running) is int and 1 <= max_running <= SIZE_MAX):
        raise InvalidTask("", f"max_running must be 1 to {SIZE_MAX}, not {max_running!r}")


def check_share(weight: int | None, priority: int | None) -> None:
    """Raises InvalidTask."""
    if weight is not None and not (type(weight) is int and 1 <= weight <= WEIGHT_MAX):
        raise InvalidTask(
            "", f"weight must be a whole number from 1 to {WEIGHT_MAX}, not {weight!r:.50}"
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
            "", f'if_exists must be "return", "raise" or "replace_finished", not {if_exists!r}'
        )
    if if_exists != "return" and key is None:
        raise InvalidTask(
            "", f"if_exists={if_exists!r} needs a key, because several plans may have one name"
        )
