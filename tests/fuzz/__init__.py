"""Fuzzers that run for long, by hand."""
