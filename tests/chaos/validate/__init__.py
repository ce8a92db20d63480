"""The validation of a chaos run: each plan is checked when it is done, and the run as a whole.

It builds on zkplan/stress/validate, which has what `zkplan stress` checks as well. A plan is
evidence for the checks: what its author added and what ran, as the processes recorded it, and what
stood in ZooKeeper at the end.
"""
