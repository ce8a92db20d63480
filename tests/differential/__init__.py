"""Random programs of several clients that must get the same bytes' worth from two servers."""
