"""Wait for plans and tasks: one result, many results, as they complete, callbacks, coroutines."""
