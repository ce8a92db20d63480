"""The inside of a worker: one loop owns all state, and stages do the work."""
