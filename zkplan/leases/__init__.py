"""Claims for programs without a session: claim, renew, log, complete or fail under a lease."""

from .giver import Leases
from .leased import Failed, Leased, Outcome, Renewal

__all__ = ["Failed", "Leased", "Leases", "Outcome", "Renewal"]
