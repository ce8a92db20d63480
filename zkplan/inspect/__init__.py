"""Read-only views of a plan: its tasks, results and dead letters, and whether it can go on."""
