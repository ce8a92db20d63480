"""The version of zkplan."""

__version__ = "0.1.0"
