"""Two graphs to what they do not have in common."""
