"""All faults, entered into the catalogue by importing this module."""

from __future__ import annotations

from . import clocks, links, operators, partitions, points, processes, servers, stores
from .fault import CATALOGUE, Entry, Fault, for_kind

__all__ = ["CATALOGUE", "Entry", "Fault", "for_kind"]
__all__ += ["clocks", "links", "operators", "partitions", "points", "processes", "servers"]
__all__ += ["stores"]
