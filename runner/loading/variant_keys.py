"""The keys of a file that extends another one.

What stands beside ``extends`` is added to the base: entries under new names, lines at the end of a list. What stands
under ``replace`` changes or removes what the base has, in the shape that it has there; null removes.
"""

from collections.abc import Mapping
from dataclasses import replace

from .spec_keys import (
    CONSTRAINT,
    DEFINITION,
    EXPRESSION_TEXT,
    INPUT,
    LINE,
    PIPELINE,
    SIZE,
    SOURCE,
    STAGE,
    WORD,
    Key,
    Lines,
    Named,
    Removable,
    Rule,
    Table,
)
from .yaml_nodes import Map, Node

BASE = Rule(
    "the name of a pipeline",
    pattern=WORD,
    help="extends names a pipeline that ships, or a file NAME.yaml beside this one; never a path",
    examples=("gated_delta",),
)
CHANGED_STAGE = Table(
    {
        "use": replace(STAGE.keys["use"], required=False),
        "in": Key("ports, each with the source that it reads now; null unbinds one", Named(Removable(SOURCE))),
        "with": Key("parameters, each with its value now; null leaves the default", Named(Removable(EXPRESSION_TEXT))),
        "recompute": STAGE.keys["recompute"],
    }
)
CHANGED_DEFINITION = Table(
    {
        "state": Key("states, each with what it starts from now; null removes one", Named(Removable(EXPRESSION_TEXT))),
        "let": Key("the lines before the first token: all of them, or OLD LINE: new line", Lines(LINE)),
        "step": Key("the lines of one token: all of them, or OLD LINE: new line", Lines(LINE)),
        "final": Key("outputs read after the last token; null removes one", Named(Removable(EXPRESSION_TEXT))),
        "dense": Key("the lines over whole tensors: all of them, or OLD LINE: new line", Lines(LINE)),
    }
)
REPLACE = Table(
    {
        "axes": Key("axes, each with its size now; null frees one", Named(Removable(SIZE))),
        "inputs": Key("inputs, each written anew as a whole; null removes one", Named(Removable(INPUT))),
        "params": Key("params, each with its default now; null removes one", Named(Removable(EXPRESSION_TEXT))),
        "constraints": Key("constraints: all of them, or OLD: new", Lines(CONSTRAINT)),
        "definition": Key("lines of the definition", CHANGED_DEFINITION),
        "stages": Key("stages, each with what is other about it; null removes one", Named(Removable(CHANGED_STAGE))),
        "edges": Key(
            "sources, each with the one that everything in the base that read it reads now; null unbinds the readers",
            Named(Removable(SOURCE), key=SOURCE),
        ),
        "outputs": Key("outputs, each with its source now; null removes one", Named(Removable(SOURCE))),
    }
)
ADDED_DEFINITION = Table(DEFINITION.keys)
OWN = ("schema", "name", "summary", "source")
"""Keys that a file never has from its base."""


def variant_keys() -> Mapping[str, Key]:
    """The keys of a pipeline, the inherited ones optional, with extends and replace after the file's own."""
    inherited = {name: replace(key, required=False) for name, key in PIPELINE.keys.items() if name not in OWN}
    inherited["definition"] = replace(inherited["definition"], kind=ADDED_DEFINITION)
    return {
        **{name: PIPELINE.keys[name] for name in OWN},
        "extends": Key("the pipeline that this one is a variant of", BASE, required=True),
        **inherited,
        "replace": Key("what is other than in the base; null removes", REPLACE),
    }


VARIANT = Table(variant_keys())


def is_variant(root: Node) -> bool:
    return isinstance(root, Map) and not root.entries.keys().isdisjoint(("extends", "replace"))
