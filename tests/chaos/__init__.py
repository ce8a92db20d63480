"""Chaos: real processes on real servers under faults, and a checker of everything they recorded."""
