"""Interfaces that people already use, over zkplan. Each module is imported only when it is used."""
