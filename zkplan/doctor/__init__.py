"""What `zkplan config check` looks at, from the settings to the limits of the servers."""

from .check import check
from .findings import Finding

__all__ = ["Finding", "check"]
