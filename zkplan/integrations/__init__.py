"""Interfaces of other packages to zkplan. Each module needs its package to be installed."""
