"""A ZooKeeper of our own, for one machine: an island that imports nothing else of zkplan."""
