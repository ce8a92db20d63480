"""Take many steps that only read side by side: each round of them is one batch of reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from ..errors import UNREACHABLE, ZkplanError
from ..protocol.requests import ReadChildren, ReadData, ReadMany, Request, Step
from ..protocol.shared import READS_PER_REQUEST

T = TypeVar("T")


def together(steps: Sequence[Step[T]]) -> Step[list[T | ZkplanError]]:
    """What each of these steps returns, or the error that it raises.

    The steps may only read small znodes. What an access list hides is missing for them, so that one
    plan does not hide all others.
    """
    results: list[Any] = [None] * len(steps)
    asked: dict[int, Request] = {}
    for index, step in enumerate(steps):
        _go_on(step, None, index, asked, results)
    while asked:
        round_of = dict(asked)
        asked.clear()
        reads = [read for request in round_of.values() for read in _reads(request)]
        answers = yield from read_small(reads, strict=False)
        at = 0
        for index, request in round_of.items():
            many = len(_reads(request))
            found = answers[at : at + many]
            at += many
            answer = found if type(request) is ReadMany else found[0]
            _go_on(steps[index], answer, index, asked, results)
    return results


def read_small(
    reads: Sequence[ReadData | ReadChildren], strict: bool | None = None
) -> Step[list[Any]]:
    """The answers to reads of small znodes, a thousand in each request. `strict`: see ReadMany."""
    answers: list[Any] = []
    for start in range(0, len(reads), READS_PER_REQUEST):
        answers += yield ReadMany(reads[start : start + READS_PER_REQUEST], strict)
    return answers


def _go_on(
    step: Step[Any], answer: Any, index: int, asked: dict[int, Request], results: list[Any]
) -> None:
    try:
        asked[index] = step.send(answer)
    except StopIteration as ended:
        results[index] = ended.value
    except UNREACHABLE:
        raise
    except ZkplanError as error:
        results[index] = error


def _reads(request: Request) -> Sequence[ReadData | ReadChildren]:
    if isinstance(request, ReadMany):
        return request.reads
    if isinstance(request, ReadData | ReadChildren):
        return (request,)
    raise TypeError(f"a step that only reads has asked for {type(request).__name__}")
