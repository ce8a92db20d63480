"""What runs in the processes of a run: plans, tasks, authors, waiters."""
