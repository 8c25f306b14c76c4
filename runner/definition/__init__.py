"""A pipeline's ``definition:`` block, the op token by token or over whole tensors: read, typed by axes, evaluated."""

from .block import Definition, parse_definition
from .check import Types, typecheck
from .evaluate import evaluate
from .problems import DefinitionError, Line, Problem

__all__ = ["Definition", "DefinitionError", "Line", "Problem", "Types", "evaluate", "parse_definition", "typecheck"]
