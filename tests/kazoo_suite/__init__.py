"""kazoo's own test suite, from its installed package, on a server of our choice."""
