"""The route that tells a caller what its token allows."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import BaseModel

from .asked import ClientOf, needs
from .problems import documented
from .tokens import ROLES, Caller, Role

router = APIRouter(tags=["root"], responses=documented())


class CallerOut(BaseModel):
    """Who asks: the name that its token was given, its roles, and the root that is served."""

    name: str
    roles: list[Role]
    root: str


@router.get("/caller", dependencies=[needs("read")])
async def show_caller(request: Request, client: ClientOf) -> CallerOut:
    """What the token of this request allows."""
    caller: Caller = request.state.caller
    roles = [role for role in ROLES if caller.may(role)]
    return CallerOut(name=caller.name, roles=roles, root=client.root)
