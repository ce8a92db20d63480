"""The embedded server on real sockets: sessions, promises, limits, garbage, and planted bugs."""
