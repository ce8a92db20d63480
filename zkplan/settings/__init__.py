"""How to connect: profiles from a file, the environment and options, merged field by field."""

from .resolve import resolve
from .settings import Settings

__all__ = ["Settings", "resolve"]
