"""How to connect: profiles from a file, the environment and options, merged field by field."""

from .resolve import one_setting, resolve
from .settings import Settings

__all__ = ["Settings", "one_setting", "resolve"]
