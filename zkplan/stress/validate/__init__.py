"""The checker: what zkplan promises, verified on what was recorded and on what is left.

The numbers are those of the invariants in docs/internals/protocol.md.
"""
