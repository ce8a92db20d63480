"""Directed races, one for each broken variant of the protocol."""
