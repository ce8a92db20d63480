"""Commands as tasks: `zkplan.shell`, its placeholders, and the processes that it starts."""
