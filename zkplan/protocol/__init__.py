"""The steps of docs/protocol.md as generators without I/O: they yield requests, get answers."""
