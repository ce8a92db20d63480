"""The traffic: plans, tasks, authors, waiters, operators, and workers with a broken protocol."""
