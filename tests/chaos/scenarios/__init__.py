"""Scenarios: for each broken variant of the protocol the race that shows it."""
