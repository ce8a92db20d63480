"""The table of all violations: honest histories, what is changed in each, and what must be found.

`honest.py` has the histories, the others the changes, each beside the violation that it must give.
"""
