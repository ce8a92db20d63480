"""Claims for programs without a session: claim, renew, log, complete or fail under a lease."""

from .giver import Leases
from .leased import Failed, Leased, Outcome, Renewal, is_held_by
from .operations import Add, Complete, Decide, Refused, Updated

__all__ = [
    "Add",
    "Complete",
    "Decide",
    "Failed",
    "Leased",
    "Leases",
    "Outcome",
    "Refused",
    "Renewal",
    "Updated",
    "is_held_by",
]
