"""Views of a plan: its tasks, results, dead letters, and the proof that it cannot go on."""
