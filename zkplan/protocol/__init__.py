"""The steps of docs/internals/protocol.md as generators without I/O: they yield requests, get
answers."""
