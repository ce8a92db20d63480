"""The faults of a run, by what they break."""
