"""How fast zkplan is on a real ZooKeeper, beside its own limits: `python -m benchmarks`."""
