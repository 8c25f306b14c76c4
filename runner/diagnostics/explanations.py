"""What each error code means, with an example and the way out: the text of ``chunkwise explain CODE``."""

from dataclasses import dataclass
from textwrap import fill

from . import codes
from .explanations_of_calls import OF_CALLS
from .explanations_of_texts import OF_TEXTS
from .warning_texts import WARNINGS

WIDTH = 100


@dataclass(frozen=True)
class Explanation:
    """why: what is wrong and why it is refused. example: what brings it about. fix: what to do."""

    why: str
    example: str
    fix: str


def explain(code: str) -> str:
    """The explanation of a code as text."""
    known, text = codes.CODES[code], EXPLANATIONS[code]
    example = "\n".join(f"    {line}" for line in text.example.splitlines())
    why, fix = fill(text.why, WIDTH), text.fix if "\n" in text.fix else fill(text.fix, WIDTH)
    return f"{code}: {known.title} (exit code {known.exit})\n\n{why}\n\n{example}\n\n{fix}"


# fmt: off
EXPLANATIONS = {code: Explanation(*texts) for code, texts in sorted({
    **OF_TEXTS,
    **OF_CALLS,
    **WARNINGS,
    codes.UNKNOWN_KEY: (
        "The key means nothing at this place. Keys that are not known are never ignored.",
        "  out: {uses: chunk_o, in: {q: q}}",
        "The help names the nearest key, or all of them.",
    ),
    codes.MISSING_KEY: (
        "A key that has no default is not there. A file has schema, name, inputs, stages and outputs; an input has a "
        "shape; a stage has use; a definition has step or dense; default: needs optional: true.",
        "  out: {in: {q: q}}",
        "Add the key that the help names.",
    ),
    codes.WRONG_KIND: (
        "A text stands where a mapping belongs, a list where a name belongs, and so on. Scalars follow YAML 1.2: "
        "only true and false are flags (yes and on are texts), and 017 is seventeen.",
        "axes: {C: sixty-four}",
        "Write the kind of value that the message names. Quotes make any value a text.",
    ),
    codes.BAD_NAME: (
        "Names of pipelines, inputs, stages, parameters and outputs become arguments and fields in Python: a letter, "
        "then letters, digits and _, at most 64 characters, and no word of Python. cu_seqlens, seqlens and outputs are "
        "arguments of every pipeline already.",
        "inputs: {lambda: B T HV}",
        "Choose another name.",
    ),
    codes.SCHEMA_VERSION: (
        "The first key says which format the file follows. Within pipeline/v1 keys are only ever added, so every v1 "
        "file stays readable; another version is refused before anything else is read.",
        "schema: pipeline/v2",
        "Write schema: pipeline/v1, or use a build that reads the file's version.",
    ),
    codes.EMPTY: (
        "The file, a value or a collection that must hold something holds nothing.",
        "outputs: {}",
        "Fill it, or remove the key where it is optional.",
    ),
    codes.SHAPE_TEXT: (
        "A shape is up to eight axis names and sizes with spaces between, outermost first. Axes: B batch, T tokens, "
        "N sequences, H query and key heads, HV value heads, K and V widths, C chunk length, NT chunks.",
        "  q: B, T, H, K",
        "Write q: B T H K.",
    ),
    codes.DTYPE_NAME: (
        "An input's dtype is io (the default: one dtype per pipeline, solved from the tensors), f32 (the accumulation "
        "dtype, float64 when io is float64), int (int32 or int64) or q8 (int8 or fp8 e4m3, beside a scale).",
        "  g: {shape: B T HV, dtype: float32}",
        "Write dtype: f32, or leave it out for io.",
    ),
    codes.UNIT_NAME: (
        "Units are a closed list, in stages/_units.py: what the numbers of an edge mean is part of its type.",
        "  g: {shape: B T HV, dtype: f32, unit: log2}",
        "Choose a unit from that file; the help names the nearest.",
    ),
    codes.LAW_TEXT: (
        "Value laws are a closed list: <= x, >= x, > x, x..y, unit_norm(AXIS), non_increasing(AXIS in chunk), and "
        "those of row numbers and of slopes in stages/_laws.py. AXIS is one that the tensor has.",
        "  beta: {shape: B T HV, where: between 0 and 1}",
        "Write where: 0..1. In { } quote a law that begins with < or > or holds a comma.",
    ),
    codes.NAME_TWICE: (
        "An expression sees inputs, parameters and axes under one set of names, and an edge sees inputs and stages; "
        "a name that could mean two of them is refused.",
        "  beta: {use: sigmoid, in: {x: beta}}        # beside inputs: {beta: B T HV}",
        "Rename one of the two.",
    ),
    codes.BAD_USE: (
        "use is the plain name of a stage, never a path and never a module: loading a pipeline runs no code that the "
        "file names.",
        "  kkt: {use: ./my_kkt.py, in: {k: k, beta: beta}}",
        "Put the file in a folder, pass --stages DIR, and write use: my_kkt.",
    ),
    codes.BAD_SOURCE: (
        "An edge comes from a pipeline input, written by its name, from a stage's output, written stage.port, or from "
        "an expression over these, params and axes. The expression is elementwise, in the grammar of definitions; "
        "operands meet by the names of their axes. What goes over an axis is the work of a stage.",
        "  kkt: {use: chunk_scaled_dot_kkt, in: {k: k, beta: beta, g: cumsum.y.0}}",
        "Write g: cumsum.y, beta: beta, or beta: 2 * sigmoid(b).",
    ),
    codes.KEYS_CLASH: (
        "Two keys exclude each other: a definition is given token by token (step) or over whole tensors (dense).",
        "definition: {step: [o = q @ k], dense: [o = q]}",
        "Keep one of the two.",
    ),
    codes.UNKNOWN_BASE: (
        "extends is the name of a pipeline that ships, or of a file NAME.yaml beside the file that extends it. It is "
        "never a path, and never both: nothing shadows a pipeline that ships.",
        "extends: gated_dleta",
        "Correct the name; `chunkwise list` names what ships. Give a file of your own a name of its own.",
    ),
    codes.BASE_CYCLE: (
        "A pipeline extends itself, by way of the files that it extends: there is no first one to start from.",
        "extends: me                               # in me.yaml",
        "One of the files of the circle stands on its own: write its inputs, stages and outputs out.",
    ),
    codes.NOT_IN_BASE: (
        "replace changes and removes what the base has. What it names is not there, by this name or as this line.",
        "extends: gated_delta\nreplace: {stages: {sacn: null}}",
        "Correct the name. What is new stands beside extends, under inputs, stages and so on. "
        "`chunkwise show BASE --resolved` prints what is there.",
    ),
    codes.IN_BASE_ALREADY: (
        "What stands beside extends is added to the base, and the base has an entry of this name.",
        "extends: gated_delta\ninputs: {k: B T H K}",
        "Write it under replace to change it:\n\n    replace:\n      inputs: {k: B T H K}",
    ),
    codes.STILL_READ: (
        "replace removes an input or a stage, and an edge or output of the base still reads it.",
        "extends: gated_delta\nreplace: {inputs: {beta: null}}",
        "Give its readers another source, all at once with edges or one by one with stages:\n\n    "
        "replace:\n      inputs: {beta: null}\n      edges: {beta: sigmoid.y}",
    ),
    codes.UNKNOWN_STAGE: (
        "No stage has this name. A stage is a file in stages/, in a folder given by --stages, or in an installed "
        "package with the entry point chunkwise.stages.",
        "  scan: {use: chunk_delta, in: {k: k}}",
        "`chunkwise list` names every stage; the help names the nearest.",
    ),
    codes.UNKNOWN_PORT: (
        "The stage has no port of this name. Edges are bound by port name, never by position.",
        "  cumsum: {use: chunk_local_cumsum, in: {g: g}}",
        "`chunkwise show STAGE` lists its ports. Here: in: {x: g}.",
    ),
    codes.UNKNOWN_SOURCE: (
        "The edge comes from something that is neither an input nor an output of a stage of this file.",
        "  cumsum: {use: chunk_local_cumsum, in: {x: gate}}",
        "The help names the nearest.",
    ),
    codes.MISSING_INPUT: (
        "A required port of the stage is not bound. Only ports marked optional may stay open.",
        "  kkt: {use: chunk_scaled_dot_kkt, in: {k: k}}",
        "Bind it: in: {k: k, beta: beta}.",
    ),
    codes.UNUSED_STAGE: (
        "Nothing uses what the stage gives, so it would never run. That is mostly an edge that goes elsewhere by "
        "mistake.",
        "  other: {use: l2norm, in: {x: k}}           # and no edge or output says other.y",
        "Use its output, or remove the stage.",
    ),
    codes.CYCLE: (
        "Stages wait for each other in a circle; the message prints the path.",
        "  a: {use: l2norm, in: {x: b.y}}\n  b: {use: l2norm, in: {x: a.y}}",
        "Cut the circle. A recurrence over chunks lives inside one stage.",
    ),
    codes.UNKNOWN_PARAM: (
        "The stage has no parameter of this name, or the pipeline has none.",
        "  out: {use: chunk_o, in: {q: q, k: k, v: scan.v_new, h: scan.h, g: cumsum.y}, with: {scle: scale}}",
        "`chunkwise show STAGE` lists its parameters.",
    ),
    codes.MISSING_PARAM: (
        "A parameter of the stage has no default and is not bound by with.",
        "  out: {use: chunk_o, in: {q: q, k: k, v: scan.v_new, h: scan.h, g: cumsum.y}}",
        "Bind it: with: {scale: scale}.",
    ),
    codes.UNUSED_INPUT: (
        "No stage reads the input, so a call would ask for a tensor that has no effect.",
        "  mask: B T",
        "Use it, or remove it.",
    ),
    codes.NO_GRADIENT: (
        "A gradient would have to leave a stage at an input that its vjp says nothing of; leaving it out would make "
        "the whole gradient wrong. Fixed slopes (g_gamma) are such inputs.",
        "o.sum().backward() with slopes.requires_grad",
        "Detach the tensor, or write that gradient in the stage's vjp.",
    ),
    codes.SHAPE: (
        "The shape that arrives does not fit the port: another number of axes, or an axis that is two sizes at once. "
        "The notes show which edge fixed the axis first.",
        "  kkt: {use: chunk_scaled_dot_kkt, in: {k: initial_state, beta: beta}}      # not B T H K",
        "Bind the value that the port means, or insert the stage that converts.",
    ),
    codes.DTYPE: (
        "The dtype that arrives is not the port's. io ports share one dtype per pipeline; f32 ports take float32.",
        "  g: {shape: B T HV, unit: log_decay/ln/token, where: \"<= 0\"}      # and no dtype: f32",
        "Bind a value of the right dtype, or declare the input with dtype: f32.",
    ),
    codes.LAYOUT: (
        "The axes are the port's and stand in another order. Sizes can agree by chance, so order is checked by name: "
        "tokens are B T H *, chunk states B NT HV K V, states N HV K V.",
        "  initial_state: {shape: N HV V K, dtype: f32, unit: state/sequence_start, optional: true}",
        "Declare the axes in the order of the message and transpose outside.",
    ),
    codes.UNIT: (
        "Shape and dtype fit, and the numbers mean something else: natural log against base 2, per token against "
        "summed in the chunk, gated against ungated. Nothing else would notice; results would be wrong in silence.",
        "  kkt: {use: chunk_scaled_dot_kkt, in: {k: k, beta: beta, g: g}}      # per token, no chunk sum",
        "Insert the stage that the help names, here cumsum: {use: chunk_local_cumsum, in: {x: g}}, and bind cumsum.y.",
    ),
    codes.LAW: (
        "The stage is right only for values that keep its law, and the inputs' laws do not imply it.",
        "  g: {shape: B T HV, dtype: f32, unit: log_decay/ln/token}      # nothing says g <= 0",
        'State the law on the input (where: "<= 0"), if it holds: --probe checks it on real tensors.',
    ),
    codes.CONSTRAINT: (
        "A relation between sizes that a stage or the pipeline requires does not hold, or a stage does not take the "
        "value of a param.",
        "chunkwise check gated_delta --axes H=3,HV=4      # HV % H == 0 is required",
        "Choose other sizes, or another value.",
    ),
    codes.AXIS_SIZE: (
        "Nothing gives the axis a size: no tensor has it, and neither axes: nor --axes names it.",
        "axes: {W: 4}                               # and no C, which the stages need",
        "Add axes: {C: 64} to the file, or pass --axes C=64.",
    ),
    codes.MUTATION: (
        "A stage writes an output over one of its inputs. The file says so (mutates: true), nothing else reads that "
        "input, and the new values are an output of the pipeline.",
        "  beta: {shape: B T HV, where: 0..1, mutates: true}      # no stage writes over it",
        "Mark what a decode stage writes over, and nothing else.",
    ),
    codes.EXPRESSION: (
        "The text does not follow the expression grammar: numbers, names, + - * / ** %, @, comparisons, & and calls "
        "of the listed functions. Nothing is evaluated as Python.",
        "- o = scale * (q @ S",
        "Correct it at the place shown.",
    ),
    codes.UNKNOWN_NAME: (
        "The expression names something that is no input, parameter, axis, state, earlier line or function.",
        "- o = scale * (q @ s)                     # the state is called S",
        "The help names the nearest.",
    ),
    codes.EXPRESSION_LIMIT: (
        "Expressions are limited in length, depth and exponents, so that a hostile file costs no more than a moment.",
        "params: {scale: 9 ** 9 ** 9}",
        "Write the number, or split the line into several.",
    ),
    codes.DEFINITION: (
        "The definition does not fit itself or the pipeline: shapes that do not go together, a state that changes its "
        "shape, an output that no line gives.",
        "- S = S + outer(v, k)                     # S is K V, the product V K",
        "Correct the line shown.",
    ),
    codes.EXPRESSION_VALUE: (
        "The expression is well formed and has no finite value for these sizes: a division by 0, a root of a negative "
        "number, an overflow.",
        "params: {scale: 1 / (C - 64)}              # beside axes: {C: 64}",
        "Change the expression or the sizes.",
    ),
    codes.STAGE_BROKEN: (
        "Importing the stage file raised an exception; the place is the line of the file that led there. Stages "
        "import without triton and without a device: kernels are imported inside launch.",
        "import triton                             # at the top of a stage file, on macOS",
        "Correct the line. From outside the checkout: from chunkwise.stages._contract import Contract, Port.",
    ),
    codes.STAGE_CONTRACT: (
        "The file has no CONTRACT or no reference, or the contract is inconsistent: a name for two things, a presence "
        "variable without an optional input, no outputs.",
        'CONTRACT = Contract(inputs={"x": Port("B T HV")}, outputs={})',
        "Complete the contract. A helper that is no stage has a file name that begins with _.",
    ),
    codes.STAGE_SIGNATURE: (
        "reference takes the contract's inputs by position, in order, and axes and params after *. launch takes "
        "inputs, outputs and scratch, then axes, params, seqs and config after *. vjp takes d_<output> and whichever "
        "inputs and outputs it needs, then axes, params and needs after *.",
        "def reference(k, g, beta, *, C): ...       # the contract says k, beta, g",
        "Name the parameters as the contract names the ports.",
    ),
    codes.STAGE_TWICE: (
        "Two files give a stage of one name. A stage from outside never shadows one that ships.",
        "chunkwise run gated_delta --stages my_stages      # my_stages/chunk_o.py",
        "Give the file a name of its own and write that in use.",
    ),
    codes.STAGE_FOLDER: (
        "--stages names something that is no folder.",
        "chunkwise list --stages my_stages/twice.py",
        "Pass the folder that holds the stage files.",
    ),
    codes.STAGE_FAILED: (
        "A function of a stage from outside the checkout raised an exception, or its reference or vjp gave something "
        "that its contract does not have: no mapping, an output too few, too many or None, another shape. Or it wrote "
        "an input. Or, under verify alone, it rounded the float64 numbers of the truth: a call runs such a stage and "
        "says nothing. The place is in the stage file.",
        'return x * 2                              # in place of return {"y": x * 2}',
        "Correct the stage file. A reference gives every output of the contract by name, in the shape of its port.",
    ),
}.items())}
