"""The op itself, token by token: a pipeline's ``definition:`` block, read, typed by named axes, evaluated in float64."""

from .block import Definition, parse_definition
from .evaluate import evaluate
from .problems import DefinitionError, Line, Problem
from .types import Types, typecheck

__all__ = ["Definition", "DefinitionError", "Line", "Problem", "Types", "evaluate", "parse_definition", "typecheck"]
