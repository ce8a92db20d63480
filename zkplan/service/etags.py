"""Tags of answers: what has not changed is not sent again, nor changed by who has not seen it."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, TypeAlias, TypeVar

from fastapi import Depends, Header, Request, Response
from pydantic import BaseModel

from .problems import Problem

M = TypeVar("M", bound=BaseModel)
#: For the contract of routes whose answers have tags.
NotModified: dict[int | str, dict[str, Any]] = {
    304: {"description": "It is as If-None-Match says."}
}


class _Same(Exception):
    """The caller has it already."""

    def __init__(self, tag: str) -> None:
        super().__init__(tag)
        self.tag = tag


def tag_of(shown: BaseModel) -> str:
    """The tag of what is shown."""
    return f'"{hashlib.blake2b(shown.model_dump_json().encode(), digest_size=12).hexdigest()}"'


class Tagger:
    """Gives the answer its tag, or says that it has not changed."""

    def __init__(
        self,
        response: Response,
        if_none_match: Annotated[str | None, Header(max_length=2000)] = None,
    ) -> None:
        self._response, self._known = response, _tags(if_none_match)

    def __call__(self, shown: M) -> M:
        tag = tag_of(shown)
        if tag in self._known or "*" in self._known:
            raise _Same(tag)
        self._response.headers["ETag"] = tag
        return shown


Tagged: TypeAlias = Annotated[Tagger, Depends(Tagger)]
IfMatch: TypeAlias = Annotated[
    str | None,
    Header(max_length=2000, description="Change it only if it still has one of these tags."),
]


def demand(if_match: str | None, shown: BaseModel | None) -> None:
    """Raise Problem if the caller wants to change what is not there as it was seen."""
    if if_match is None:
        return
    known = _tags(if_match)
    if shown is None or not ("*" in known or tag_of(shown) in known):
        raise Problem(
            412,
            "changed-meanwhile",
            "it is not as If-Match says any more",
            "Read it again, and repeat with its new ETag.",
        )


def _tags(header: str | None) -> frozenset[str]:
    """Weak ones count as strong: an answer is made anew each time."""
    found = (each.strip().removeprefix("W/") for each in (header or "").split(","))
    return frozenset(each for each in found if each)


async def not_modified(_: Request, error: Exception) -> Response:
    """The handler of answers that need not be sent."""
    return Response(status_code=304, headers={"ETag": str(error)})


Same = _Same
