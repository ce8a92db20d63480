"""The deterministic simulation: the real steps on the pure tree, under seeded faults."""
