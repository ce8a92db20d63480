"""`zkplan demo`: a plan on real input, with a worker killed midway."""
