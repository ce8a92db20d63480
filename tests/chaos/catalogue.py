"""All faults, entered into the catalogue by importing this."""

from __future__ import annotations

from . import faults_links, faults_operators, faults_points, faults_processes, faults_servers
from .fault import CATALOGUE, Entry, Fault, for_kind

__all__ = [
    "CATALOGUE",
    "Entry",
    "Fault",
    "faults_links",
    "faults_operators",
    "faults_points",
    "faults_processes",
    "faults_servers",
]
__all__ += ["for_kind"]
