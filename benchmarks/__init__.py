"""Measure the speed of zkplan, on its own server and a real ZooKeeper: `python -m benchmarks`."""
