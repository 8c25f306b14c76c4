"""Pipelines that are one expression in an edge."""

import re

import torch

from chunkwise.runner import load
from chunkwise.runner.definition.functions import FUNCTIONS

UNARY = [name for name, function in FUNCTIONS.items() if function.rule == "map" and function.arity == 1]
POINTS = torch.cat([s * torch.logspace(-6, 2, 161, dtype=torch.float64) for s in (-1, 1)]).sort().values
"""Both signs, from 1e-6 to 100."""


def of_text(text, shapes, folder, backend="reference"):
    """The op y = text; shapes: of the inputs that it reads."""
    entries = "".join(f"  {name}: {{shape: {shape}}}\n" for name, shape in shapes.items())
    first = next(iter(shapes))
    path = folder / "expression.yaml"
    path.write_text(
        f"schema: pipeline/v1\nname: expression\ninputs:\n{entries}params: {{scale: 0.5}}\n"
        f"stages: {{s: {{use: {stage_for(shapes[first])}, in: {{x: {first}}}}}}}\n"
        f"outputs: {{y: '{text}', other: s.y}}\n"
    )
    return load(path, backend=backend)


def stage_for(shape):
    return "l2norm" if len(shape.split()) == 4 else "sigmoid"


def expression_op(text, shapes, folder, backend="reference"):
    """The same for the inputs that the text names."""
    used = [name for name in shapes if re.search(rf"\b{name}\b", text)]
    return of_text(text, {name: shapes[name] for name in used}, folder, backend)
