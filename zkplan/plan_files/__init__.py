"""Plan files: a plan described in TOML, read and checked as a whole, then created."""
