"""Fields of requests that several models have: names, options of tasks, moments."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from ..functions.limit_names import LIMITS_MAX
from ..functions.option_checks import DELAY_MAX_S
from ..protocol.layout import PRIORITY_MAX, PRIORITY_MIN
from ..serialization.functions import NAME_CHARS_MAX

#: No control character, and nothing that ends a line.
_PRINTABLE = r"^[^\u0000-\u001f\u007f-\u00a0\u00ad\u2028\u2029]+$"
Label = Annotated[str, Field(min_length=1, max_length=NAME_CHARS_MAX, pattern=_PRINTABLE)]
QueueName = Annotated[str, Field(pattern=r"^[a-z0-9._-]{1,40}$")]
Priority = Annotated[int, Field(ge=PRIORITY_MIN, le=PRIORITY_MAX)]


def _as_date(value: Any) -> Any:
    """A text is a date; what is none is left to be refused."""
    if not isinstance(value, str):
        raise ValueError("a number of seconds, or a date and time with its zone")
    return datetime.fromisoformat(value.upper().replace("Z", "+00:00"))


#: A date with its zone, or in how many seconds.
MomentIn = (
    Annotated[float, Field(ge=0, le=10 * 365 * 24 * 3600)]
    | Annotated[AwareDatetime, BeforeValidator(_as_date, json_schema_input_type=AwareDatetime)]
)
Errors = Annotated[
    list[Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$", max_length=200)]],
    Field(max_length=50, description="Classes of exceptions, as MODULE:CLASS."),
]
RunIf = Literal["all_succeeded", "all_finished", "any_failed"]


class Strict(BaseModel):
    """The body of a request: a field that is not known is refused, and so is a text for a
    number."""

    model_config = ConfigDict(extra="forbid", strict=True)


class TaskOptionsIn(Strict):
    """Options of a task; what is left out is as the plan says. `Plan.add_task` explains them."""

    attempts: Annotated[int, Field(ge=1, le=1000)] | None = None
    retry_delay: Annotated[float, Field(ge=0, le=DELAY_MAX_S)] | None = None
    timeout: Annotated[float, Field(gt=0, le=DELAY_MAX_S)] | None = None
    priority: Priority | None = None
    keep: bool | None = None
    pure: bool | None = None
    queue: QueueName | None = None
    limits: Annotated[list[QueueName], Field(max_length=LIMITS_MAX)] | None = None
    fatal: Errors | None = None
    retry_if: Errors | None = None


def given_in(model: BaseModel) -> dict[str, Any]:
    """The fields that a request has given, and that are not null."""
    return {name: value for name, value in model if value is not None}
