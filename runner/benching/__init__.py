"""Benchmarks: clocks, limits, peers, records, and what two sets of records say about each other."""
