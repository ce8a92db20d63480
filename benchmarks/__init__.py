"""How fast zkplan and its own server are, beside a real ZooKeeper: `python -m benchmarks`."""
