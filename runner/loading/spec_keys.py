"""The keys of a pipeline file, as one table. The loader checks by it, and the JSON Schema is generated from it.

``schema: pipeline/v1`` versions this table. A v1 file stays readable by every later build: within v1 keys are only
added, optional, and with a default that means what their absence meant; no key changes its meaning, is made
required, or goes. A change that cannot keep this is v2, beside v1. A build refuses a version that it does not
know, before it looks at anything else.
"""

import keyword
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ...stages import _laws
from ...stages._contract import F32, INT, IO, Q8
from ...stages._units import UNITS
from ..diagnostics.codes import (
    BAD_NAME,
    BAD_SOURCE,
    BAD_USE,
    DTYPE_NAME,
    EXPRESSION,
    LAW_TEXT,
    SHAPE_TEXT,
    UNIT_NAME,
    WRONG_KIND,
)
from ..expression import ExpressionError
from ..maps.parse_formula import formula_problem

FAMILY = "pipeline"
VERSIONS = ("pipeline/v1",)
"""Every version that this build reads, the newest last."""


@dataclass(frozen=True)
class Rule:
    """What one scalar may be.

    words: what belongs there, for messages and for the schema.
    code: the error code of a text that does not fit.
    pattern: a regular expression for the whole text. choices: the closed list with a line on each.
    parse: returns None for a text that is not allowed. problem: what is wrong inside a text, and where.
    refused: texts that fit the pattern and are not allowed.
    numbers, texts: whether a number, a text will do. whole: numbers are whole and from 1 on. most: the largest of them.
    exact: the text stands in the file as it is, on one line, so that errors inside it have exact places.
    help: what to write instead; without it the examples serve.
    """

    words: str
    code: str = WRONG_KIND
    pattern: str | None = None
    choices: Mapping[str, str] | None = None
    parse: Callable[[str], object] | None = None
    problem: Callable[[str], ExpressionError | None] | None = None
    refused: frozenset[str] = frozenset()
    numbers: bool = False
    texts: bool = True
    whole: bool = False
    most: int | None = None
    exact: bool = False
    help: str | None = None
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Flag:
    """true or false."""


@dataclass(frozen=True)
class Many:
    """A list of item. single: one item may stand without the list."""

    item: Rule
    single: bool = False


@dataclass(frozen=True)
class Key:
    """One key of a table. required: it must stand there."""

    doc: str
    kind: "Kind"
    required: bool = False


@dataclass(frozen=True)
class Table:
    """A mapping with known keys.

    short: the key whose value may stand for the whole table. one_of: exactly one of these stands there.
    needs: a key -> the flag that must be true beside it.
    """

    keys: Mapping[str, Key]
    short: str | None = None
    one_of: tuple[str, ...] = ()
    needs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Named:
    """A mapping from names to item. filled: it holds at least one. key: what stands for a name, if it is none."""

    item: "Kind"
    filled: bool = False
    key: Rule | None = None


@dataclass(frozen=True)
class Removable:
    """An item, or null, which removes what stood there."""

    item: "Kind"


@dataclass(frozen=True)
class Lines:
    """A whole list of item; or a mapping from some of its items to what each becomes: one, several, or null."""

    item: Rule


Kind = Rule | Flag | Many | Table | Named | Removable | Lines

WORD = "[A-Za-z][A-Za-z0-9_]{0,63}"
OWN = ("cu_seqlens", "seqlens", "outputs")
"""What every call takes beside the inputs and params of its pipeline."""
NAME = Rule(
    "a name",
    BAD_NAME,
    WORD,
    refused=frozenset(keyword.kwlist) | {"cu_seqlens"},
    help="a letter, then letters, digits and _, at most 64; no word of Python, and not cu_seqlens",
)
ARGUMENT = replace(
    NAME,
    refused=NAME.refused | set(OWN),
    help="a letter, then letters, digits and _, at most 64; no word of Python, and not cu_seqlens, seqlens or outputs",
)
"""Of inputs and params. Stages and outputs may have these names, and files of v1 do."""
TEXT = Rule("a text")
VERSION = Rule("the version of the file's format", choices=dict.fromkeys(VERSIONS, "the format that this file follows"))
FIXED_AXIS = replace(
    NAME,
    refused=NAME.refused | {"N", "NT"},
    help="a letter, then letters, digits and _; not N and NT, which follow from the other sizes",
)
LARGEST = 10**9 - 1
"""The largest size of an axis: nine digits, as in shapes and in --axes."""
CHUNK_LENGTHS = r"[1-9][0-9]{0,5}\.\.[1-9][0-9]{0,5}"


def chunk_lengths(text: str) -> tuple[int, int] | None:
    """(least, most) of ``16..64``, both powers of two."""
    least, most = map(int, text.split("..")) if re.fullmatch(CHUNK_LENGTHS, text) else (1, 0)
    return (least, most) if least < most and least.bit_count() == most.bit_count() == 1 else None


SIZE = Rule(
    f"a whole number from 1 to {LARGEST}",
    pattern=CHUNK_LENGTHS,
    parse=chunk_lengths,
    numbers=True,
    whole=True,
    most=LARGEST,
    help="a size; for the chunk length C also its least and most, powers of two, as 16..64",
    examples=("64", "16..64"),
)
NUMBER = Rule("a number", numbers=True, texts=False)
EXPRESSION_TEXT = Rule("an expression or a number", EXPRESSION, numbers=True, exact=True, examples=("K ** -0.5",))
CONSTRAINT = Rule("an expression that is true or false", EXPRESSION, exact=True, examples=("HV % H == 0",))
LINE = Rule("a line of the form name = expression", EXPRESSION, exact=True, examples=("o = scale * (q @ S)",))
AXIS_OR_SIZE = f"(?:{WORD}|[1-9][0-9]{{0,8}})"
SHAPE = Rule(
    "a shape",
    SHAPE_TEXT,
    f"{AXIS_OR_SIZE}(?: +{AXIS_OR_SIZE}){{0,7}}",
    numbers=True,
    whole=True,
    exact=True,
    help="axis names and sizes with spaces between, as B T H K",
    examples=("B T H K", "B T HV", "N HV K V"),
)
DTYPE = Rule(
    "a dtype",
    DTYPE_NAME,
    choices={
        IO: "the pipeline's one dtype, solved from the tensors of a call",
        F32: "float32; float64 when io is float64",
        INT: "int32 or int64",
        Q8: "int8 or fp8 (e4m3): numbers in eight bits, which a scale of their own stands beside",
    },
)
UNIT = Rule("a unit", UNIT_NAME, choices=UNITS)
LAW = Rule(
    "a value law",
    LAW_TEXT,
    parse=_laws.parse,
    exact=True,
    help="one of " + ", ".join(_laws.FORMS),
    examples=("<= 0", "0..1", "unit_norm(K)"),
)
USE = Rule(
    "the plain name of a stage",
    BAD_USE,
    WORD,
    help="use names a stage, never a file; --stages DIR brings in stages of your own",
)
SOURCE = Rule(
    "a pipeline input, stage.port, or an expression over them",
    BAD_SOURCE,
    rf"{WORD}(?:\.{WORD})?|.*[^A-Za-z0-9_.].*",  # one word, or something that has operators
    problem=formula_problem,
    exact=True,
    examples=("q", "cumsum.y", "elu(k) + 1"),
)

INPUT_NAME = Rule("the name of an input", BAD_NAME, WORD)

INPUT = Table(
    {
        "shape": Key("axis names and sizes with spaces between, outermost first", SHAPE, required=True),
        "dtype": Key("io (the default), f32 or int", DTYPE),
        "unit": Key("what the numbers mean; none joins only none", UNIT),
        "where": Key("what holds of every value: one law or a list", Many(LAW, single=True)),
        "optional": Key("whether a call may leave it out", Flag()),
        "default": Key("the value that an absent optional input stands for in the definition", NUMBER),
        "mutates": Key("whether a call writes its new values over it", Flag()),
        "slots": Key("the input that names each sequence's row of this one; -1 skips a sequence", INPUT_NAME),
        "doc": Key("one line for the documentation", TEXT),
    },
    short="shape",
    needs={"default": "optional"},
)
STAGE = Table(
    {
        "use": Key("the stage's name", USE, required=True),
        "in": Key("the stage's input ports, each with its source: input, stage.port or expression", Named(SOURCE)),
        "with": Key("the stage's parameters, each with a number, a parameter or an expression", Named(EXPRESSION_TEXT)),
        "recompute": Key("whether the backward pass rebuilds its outputs instead of keeping them", Flag()),
    }
)
DEFINITION = Table(
    {
        "state": Key("the states that step carries, each with what it starts from", Named(EXPRESSION_TEXT)),
        "let": Key("lines computed once, before the first token", Many(LINE)),
        "step": Key("the lines of one token, for one sequence and value head", Many(LINE)),
        "final": Key("outputs read after the last token, each with the state that it is", Named(EXPRESSION_TEXT)),
        "dense": Key("the lines of the op over whole tensors", Many(LINE)),
    },
    one_of=("step", "dense"),
)
PIPELINE = Table(
    {
        "schema": Key("the version of the file's format", VERSION, required=True),
        "name": Key("the op's name", NAME, required=True),
        "summary": Key("one line on what the op is", TEXT),
        "source": Key("where the op was published", TEXT),
        "axes": Key(
            "axes whose size the file fixes; C is the chunk length, as 16..64 if it follows T",
            Named(SIZE, key=FIXED_AXIS),
        ),
        "inputs": Key(
            "the tensors of a call, each a shape or a mapping", Named(INPUT, filled=True, key=ARGUMENT), required=True
        ),
        "params": Key(
            "numbers of a call, each with its default: an expression over axes", Named(EXPRESSION_TEXT, key=ARGUMENT)
        ),
        "constraints": Key("expressions over axes that hold in every call", Many(CONSTRAINT)),
        "definition": Key("the op itself, evaluated in float64: the oracle of verify", DEFINITION),
        "stages": Key("the stages of the chunked form, in any order", Named(STAGE, filled=True), required=True),
        "outputs": Key("what a call returns, each with its source", Named(SOURCE, filled=True), required=True),
    }
)
RECURRENCE = Table(
    {
        **{name: key for name, key in PIPELINE.keys.items() if name != "stages"},
        "name": replace(PIPELINE.keys["name"], required=False),
        "definition": replace(PIPELINE.keys["definition"], required=True),
        "outputs": replace(PIPELINE.keys["outputs"], required=False),
    }
)
"""What ``chunkwise new`` starts from: a pipeline whose stages, and so its outputs' sources, are still to be found."""
