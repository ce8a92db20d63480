"""Processes that zkplan starts: until they are ready, while they run, when they die, to their end.

`zkplan worker --processes`, `zkplan.local`, the demo, the stress run and the tools for tests use
these, and each other's ways to start a process nowhere.
"""
