"""The inside of a worker: one loop that owns all state, and the stages that it drives."""
