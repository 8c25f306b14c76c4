"""Text to spec: YAML with marks, keys checked, nothing resolved."""
