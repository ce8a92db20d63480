"""The life of a task, a worker and a plan: add, claim, load, commit, publish and end."""
