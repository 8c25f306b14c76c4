"""Expressions in edges: elementwise maps that become stages of their own, with a derived gradient and kernels."""
