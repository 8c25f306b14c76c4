"""Every error code, by number range: its title and the exit code of a command that ends with it.

    CW1xx  the text of a file          CW5xx  stage files
    CW2xx  a pipeline's keys, wiring;  CW6xx  how it was called
           CW24x are warnings
    CW3xx  the types of edges          CW7xx  the machine
    CW4xx  expressions, definition     CW8xx  it ran and failed        CW9xx  chunkwise itself

Numbers are never given twice: a code that goes out of use stays out of use. The paragraph that
``chunkwise explain CODE`` prints stands in explanations.py.
"""

from collections.abc import Iterable
from dataclasses import dataclass

PASSED, FAILED, REFUSED, ENVIRONMENT, BROKEN = 0, 1, 2, 3, 4
"""Exit codes: nothing but warnings; ran and failed; usage, file or contract error; machine or back end missing; a
fault of chunkwise."""

NO_FILE = "CW101"
ENCODING = "CW102"
YAML_SYNTAX = "CW103"
DUPLICATE_KEY = "CW104"
YAML_FEATURE = "CW105"
LIMIT = "CW106"

UNKNOWN_KEY = "CW201"
MISSING_KEY = "CW202"
WRONG_KIND = "CW203"
BAD_NAME = "CW204"
SCHEMA_VERSION = "CW205"
EMPTY = "CW206"
SHAPE_TEXT = "CW207"
DTYPE_NAME = "CW208"
UNIT_NAME = "CW209"
LAW_TEXT = "CW210"
NAME_TWICE = "CW211"
BAD_USE = "CW212"
BAD_SOURCE = "CW213"
KEYS_CLASH = "CW214"
UNKNOWN_BASE = "CW215"
BASE_CYCLE = "CW216"
NOT_IN_BASE = "CW217"
IN_BASE_ALREADY = "CW218"
STILL_READ = "CW219"

UNKNOWN_STAGE = "CW221"
UNKNOWN_PORT = "CW222"
UNKNOWN_SOURCE = "CW223"
MISSING_INPUT = "CW224"
UNUSED_STAGE = "CW225"
CYCLE = "CW226"
UNKNOWN_PARAM = "CW227"
MISSING_PARAM = "CW228"
UNUSED_INPUT = "CW229"
NO_GRADIENT = "CW230"

UNREAD_OUTPUT = "CW241"
GRADIENT_FALLBACK = "CW242"
UNFIXED_AXIS = "CW243"
LONG_KEYS = "CW244"

SHAPE = "CW301"
DTYPE = "CW302"
LAYOUT = "CW303"
UNIT = "CW304"
LAW = "CW305"
CONSTRAINT = "CW306"
AXIS_SIZE = "CW307"
MUTATION = "CW320"

EXPRESSION = "CW401"
UNKNOWN_NAME = "CW402"
EXPRESSION_LIMIT = "CW403"
DEFINITION = "CW404"
EXPRESSION_VALUE = "CW405"

STAGE_BROKEN = "CW501"
STAGE_CONTRACT = "CW502"
STAGE_SIGNATURE = "CW503"
STAGE_TWICE = "CW504"
STAGE_FOLDER = "CW505"
STAGE_FAILED = "CW506"

USAGE = "CW601"
BAD_AXES = "CW602"
BAD_SEQLENS = "CW603"
TENSOR = "CW604"
SIZE = "CW605"
UNKNOWN_WORKLOAD = "CW606"
INPUTS_FILE = "CW607"
UNKNOWN_CODE = "CW608"
DOUBLE_BACKWARD = "CW609"
RUN_REPORT = "CW610"
TRANSFORM = "CW611"
RECORDS = "CW612"
NOT_CUT = "CW621"
RANKS_DIFFER = "CW622"

NO_GPU = "CW701"
BACKEND = "CW702"
OUT_OF_MEMORY = "CW703"
OUTPUT = "CW704"
RANK_LOST = "CW711"

OUT_OF_BUDGET = "CW801"
VALUE_OUT_OF_LAW = "CW802"
NOT_FINITE = "CW803"
LAUNCH_FAILED = "CW804"
NO_STAGES = "CW805"
ABOVE_CEILING = "CW806"
REGRESSION = "CW807"

INTERNAL = "CW901"


@dataclass(frozen=True)
class Code:
    """title: a few words. exit: the exit code of a command that ends with it."""

    title: str
    exit: int


CODES = {
    NO_FILE: Code("no such file", REFUSED),
    ENCODING: Code("not a text in UTF-8", REFUSED),
    YAML_SYNTAX: Code("YAML syntax", REFUSED),
    DUPLICATE_KEY: Code("duplicate key", REFUSED),
    YAML_FEATURE: Code("a feature of YAML that pipelines do not use", REFUSED),
    LIMIT: Code("file beyond a limit", REFUSED),
    UNKNOWN_KEY: Code("unknown key", REFUSED),
    MISSING_KEY: Code("missing key", REFUSED),
    WRONG_KIND: Code("wrong kind of value", REFUSED),
    BAD_NAME: Code("not a name", REFUSED),
    SCHEMA_VERSION: Code("schema version", REFUSED),
    EMPTY: Code("nothing there", REFUSED),
    SHAPE_TEXT: Code("not a shape", REFUSED),
    DTYPE_NAME: Code("unknown dtype", REFUSED),
    UNIT_NAME: Code("unknown unit", REFUSED),
    LAW_TEXT: Code("unknown value law", REFUSED),
    NAME_TWICE: Code("one name for two things", REFUSED),
    BAD_USE: Code("use is not a plain stage name", REFUSED),
    BAD_SOURCE: Code("not a source of an edge", REFUSED),
    KEYS_CLASH: Code("keys that exclude each other", REFUSED),
    UNKNOWN_BASE: Code("no pipeline to extend", REFUSED),
    BASE_CYCLE: Code("pipelines that extend each other", REFUSED),
    NOT_IN_BASE: Code("replaces what the base does not have", REFUSED),
    IN_BASE_ALREADY: Code("adds what the base has already", REFUSED),
    STILL_READ: Code("removed and still read", REFUSED),
    UNKNOWN_STAGE: Code("unknown stage", REFUSED),
    UNKNOWN_PORT: Code("unknown port", REFUSED),
    UNKNOWN_SOURCE: Code("unknown source", REFUSED),
    MISSING_INPUT: Code("required port not bound", REFUSED),
    UNUSED_STAGE: Code("unused stage", REFUSED),
    CYCLE: Code("cycle", REFUSED),
    UNKNOWN_PARAM: Code("unknown parameter", REFUSED),
    MISSING_PARAM: Code("parameter not bound", REFUSED),
    UNUSED_INPUT: Code("unused input", REFUSED),
    NO_GRADIENT: Code("gradient that no stage gives", REFUSED),
    UNREAD_OUTPUT: Code("output that nothing reads", PASSED),
    GRADIENT_FALLBACK: Code("gradient by autograd through a reference", PASSED),
    UNFIXED_AXIS: Code("axis that no input fixes", PASSED),
    LONG_KEYS: Code("keys of any length in a delta rule", PASSED),
    SHAPE: Code("shape mismatch", REFUSED),
    DTYPE: Code("dtype mismatch", REFUSED),
    LAYOUT: Code("layout mismatch", REFUSED),
    UNIT: Code("unit mismatch", REFUSED),
    LAW: Code("value law not implied", REFUSED),
    CONSTRAINT: Code("constraint broken", REFUSED),
    AXIS_SIZE: Code("axis without a size", REFUSED),
    MUTATION: Code("written over unannounced", REFUSED),
    EXPRESSION: Code("expression syntax", REFUSED),
    UNKNOWN_NAME: Code("unknown name in an expression", REFUSED),
    EXPRESSION_LIMIT: Code("expression beyond a limit", REFUSED),
    DEFINITION: Code("definition does not fit", REFUSED),
    EXPRESSION_VALUE: Code("expression without a value", REFUSED),
    STAGE_BROKEN: Code("stage file cannot be loaded", REFUSED),
    STAGE_CONTRACT: Code("stage contract", REFUSED),
    STAGE_SIGNATURE: Code("stage function does not take the contract's names", REFUSED),
    STAGE_TWICE: Code("two stages of one name", REFUSED),
    STAGE_FOLDER: Code("no such folder of stages", REFUSED),
    STAGE_FAILED: Code("stage of your own failed", REFUSED),
    USAGE: Code("command line", REFUSED),
    BAD_AXES: Code("bad axis sizes", REFUSED),
    BAD_SEQLENS: Code("bad sequence lengths", REFUSED),
    TENSOR: Code("wrong tensor", REFUSED),
    SIZE: Code("unsupported size", REFUSED),
    UNKNOWN_WORKLOAD: Code("unknown workload", REFUSED),
    INPUTS_FILE: Code("inputs file does not fit", REFUSED),
    UNKNOWN_CODE: Code("unknown error code", REFUSED),
    DOUBLE_BACKWARD: Code("gradient of a gradient", REFUSED),
    RUN_REPORT: Code("not the report of that run", REFUSED),
    TRANSFORM: Code("function transform", REFUSED),
    RECORDS: Code("not a file of records", REFUSED),
    NOT_CUT: Code("sequence that cannot be cut", REFUSED),
    RANKS_DIFFER: Code("ranks that do not agree", REFUSED),
    NO_GPU: Code("no GPU", ENVIRONMENT),
    BACKEND: Code("back end missing", ENVIRONMENT),
    OUT_OF_MEMORY: Code("out of memory", ENVIRONMENT),
    OUTPUT: Code("output that cannot be written", ENVIRONMENT),
    RANK_LOST: Code("another rank is gone", ENVIRONMENT),
    OUT_OF_BUDGET: Code("error out of budget", FAILED),
    VALUE_OUT_OF_LAW: Code("value out of its law", FAILED),
    NOT_FINITE: Code("nan or inf", FAILED),
    LAUNCH_FAILED: Code("kernel failed", FAILED),
    NO_STAGES: Code("no stages for a definition", FAILED),
    ABOVE_CEILING: Code("more than the device can do", FAILED),
    REGRESSION: Code("slower than before", FAILED),
    INTERNAL: Code("internal error", BROKEN),
}


def exit_code(codes: Iterable[str]) -> int:
    """The exit code of a command that ends with these error codes: the highest of theirs, 0 for none."""
    return max((CODES[code].exit for code in codes), default=0)
