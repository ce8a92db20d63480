"""The inside of a worker: one loop that owns all its state, and what that loop delegates."""
