"""All faults, entered into the catalogue by importing this."""

from __future__ import annotations

from . import clocks, links, network, operators, points, processes, servers, sessions
from .fault import CATALOGUE, Entry, Fault, for_kind

__all__ = ["CATALOGUE", "Entry", "Fault", "for_kind"]
__all__ += ["clocks", "links", "network", "operators", "points", "processes", "servers", "sessions"]
