"""All faults, entered into the catalogue by importing this."""

from __future__ import annotations

from . import (
    faults_clocks,
    faults_links,
    faults_network,
    faults_operators,
    faults_points,
    faults_processes,
    faults_servers,
    faults_sessions,
)
from .fault import CATALOGUE, Entry, Fault, for_kind

__all__ = [
    "CATALOGUE",
    "Entry",
    "Fault",
    "faults_clocks",
    "faults_links",
    "faults_network",
    "faults_operators",
    "faults_points",
    "faults_processes",
    "faults_servers",
    "faults_sessions",
]
__all__ += ["for_kind"]
