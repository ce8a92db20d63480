"""Check the promises of zkplan on the recorded history and on what is left in the tree.

The numbers are those of the invariants in docs/internals/protocol.md.
"""
