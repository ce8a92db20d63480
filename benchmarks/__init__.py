"""How fast zkplan is on a real ZooKeeper, beside that server's own limits: `python -m benchmarks`."""
