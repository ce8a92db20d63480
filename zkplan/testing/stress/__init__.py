"""The stress run: many workers on a random graph, a history, and every promise checked."""
