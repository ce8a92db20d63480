"""The stress harness: worker processes on a random graph, a history, every promise checked."""
