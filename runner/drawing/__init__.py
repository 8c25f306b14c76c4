"""A graph as a picture: SVG, DOT, Mermaid."""
