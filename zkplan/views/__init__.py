"""Read plans, tasks, queues and workers, and explain their state. Nothing here runs a task."""
