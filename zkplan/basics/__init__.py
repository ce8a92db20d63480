"""Helpers for all packages: text, time, files, settings and logs; and the version of zkplan."""

__version__ = "0.1.0"
