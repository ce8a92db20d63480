"""What authors and operators do: define tasks, wait for results, decide, export, archive."""
