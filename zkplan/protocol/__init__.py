"""The protocol as generators without I/O: a step yields requests and gets answers."""
