"""Views of a plan that change nothing: its tasks, results, dead letters, and whether it can go
on."""
