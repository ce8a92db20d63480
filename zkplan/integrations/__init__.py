"""Adapters between zkplan and other packages. Each module needs its package to be installed."""
