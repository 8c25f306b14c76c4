"""Spec to graph: names resolved, every edge typed, axes in numbers."""
