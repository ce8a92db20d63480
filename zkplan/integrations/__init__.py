"""Interfaces that people already use, over zkplan. Each module needs a package of its own."""
