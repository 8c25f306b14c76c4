"""A pipeline as one plain Python file."""
