"""Why something does not run, in the contract."""

from __future__ import annotations

from pydantic import BaseModel

from ..inspection.view import Why


class CauseOut(BaseModel):
    """One cause: `code` for programs, `text` for people, `advice` says what to do."""

    code: str
    text: str
    advice: str
    task: int | None
    worker: str
    when: float | None


class WhyOut(BaseModel):
    """Why a plan or a task does not run now. The first cause comes first."""

    path: str
    state: str
    causes: list[CauseOut]


def why_out(found: Why) -> WhyOut:
    """The causes as they are shown."""
    causes = [
        CauseOut(**cause._asdict() | {"task": int(cause.task) if cause.task else None})
        for cause in found.causes
    ]
    return WhyOut(path=found.path, state=found.state, causes=causes)
