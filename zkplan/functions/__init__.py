"""Turn calls of functions into tasks: the decorator, and `Plan.map`."""
